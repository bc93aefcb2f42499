// Token plus learned position embedding, and elementwise sums of the residual stream.
#pragma once

namespace quads::reference {

// x[t,d] = RN(token_table[tokens[t],d] + position_table[positions[t],d]), rounded to BF16 where bf16 is true.
void embed(const int* tokens,            // (T) 0 .. V-1
           const int* positions,         // (T)
           const float* token_table,     // (V, D)
           const float* position_table,  // (positions of the model, D)
           int T, int D, bool bf16,
           float* x);                    // (T, D)

// d_table[i,d] = sum of dx[t,d] over the rows with index[t] = i, ascending t from 0; rows nobody used get 0.
void embed_backward(const float* dx,   // (T, D)
                    const int* index,  // (T) 0 .. rows-1: the tokens or the positions
                    int T, int D, int rows,
                    float* d_table);   // (rows, D) overwritten

// y[i] = RN(a[i] + b[i]), rounded to BF16 where bf16 is true: the residual stream of an engine. y may be a or b.
void add(const float* a, const float* b, int n, bool bf16, float* y);

// y[i] = bf16(x[i]). y may be x.
void round_bf16(const float* x, int n, float* y);

// y[rows[t],:] = x[t,:]
void scatter_rows(const float* x,   // (T, D)
                  const int* rows,  // (T) distinct
                  int T, int D,
                  float* y);        // (at least max(rows) + 1, D)

// The same for integers.
void scatter_rows_int(const int* x, const int* rows, int T, int D, int* y);

}  // namespace quads::reference
