// Usual mistakes with NVFP4, each carried out from the formulas, without the operations under reference/. A mistake is
// one line that asks for itself; everything else in these functions is right.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "reference/oracles.hpp"
#include "tests/verify/operations.hpp"

namespace verify {
namespace {

constexpr int kBlock = 16;
int blocks_of(int K) { return (K + kBlock - 1) / kBlock; }

// --- Codecs with a choice of rounding ---

enum class Rounding { even, away, down };

// |x| to a multiple of `step`.
double round_to(double x, double step, Rounding rounding) {
    const double units = x / step;
    return step * (rounding == Rounding::even ? std::nearbyint(units)
                                              : std::floor(units + (rounding == Rounding::away ? 0.5 : 0)));
}

// Rounds to the values of a small float: `bits` fraction bits, smallest normal exponent, largest value.
double round_small(double x, int bits, int least_exponent, double largest, Rounding rounding) {
    const double a = std::fabs(x);
    const int exponent = a == 0 ? least_exponent : std::max(std::ilogb(a), least_exponent);
    return std::copysign(std::min(round_to(a, std::ldexp(1.0, exponent - bits), rounding), largest), x);
}
double round_e2m1(double x, Rounding rounding) { return round_small(x, 1, 0, 6, rounding); }
double round_e4m3(double x, Rounding rounding) { return round_small(x, 3, -6, 448, rounding); }

const float kE2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
int e2m1_code(double value) {
    return static_cast<int>(std::find(kE2m1, kE2m1 + 8, std::fabs(value)) - kE2m1) | (std::signbit(value) ? 8 : 0);
}
float e2m1_value(int code) { return (code & 8 ? -1.0f : 1.0f) * kE2m1[code & 7]; }

int e4m3_code(double value) {
    if (std::isnan(value)) return 0x7F;  // a wrong recipe may divide 0 by 0
    if (value < 0x1p-6) return static_cast<int>(value * 512);
    const int exponent = std::ilogb(value);
    return (exponent + 7) * 8 + static_cast<int>(std::ldexp(value, 3 - exponent)) - 8;
}
float e4m3_value(int code) {
    return static_cast<float>(code < 8 ? code / 512.0 : std::ldexp(8 + code % 8, code / 8 - 10));
}

// --- Quantise ---

enum class Quantize {
    nibbles,
    unrounded,
    away,
    truncated,
    scale_away,
    scale_truncated,
    flush,
    no_outer,
    inverted,
    encode_outer,
    matrix_outer,
    order,
    divide,
    hardware_zero,
    no_sign,
    neighbours
};

float amax(const float* x, int n) {
    float largest = 0;
    for (int i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
    return largest;
}

float block_scale(float a, float encode, Quantize flaw) {
    if (flaw == Quantize::order) return encode * (a * (1.0f / 6));
    if (flaw == Quantize::divide) return a / 6 * encode;
    return a * (encode * (1.0f / 6));
}

int element_code(float x, float scale, float outer, Quantize flaw) {
    if (scale == 0 && flaw != Quantize::hardware_zero) return 0;
    const float inverse = std::min(1.0f / (scale * outer), FLT_MAX);
    float scaled = x * inverse;
    if (flaw == Quantize::divide) scaled = x / (scale * outer);
    const Rounding rounding = flaw == Quantize::away        ? Rounding::away
                              : flaw == Quantize::truncated ? Rounding::down
                                                            : Rounding::even;
    const int code = e2m1_code(round_e2m1(std::clamp(scaled, -6.0f, 6.0f), rounding));
    return flaw == Quantize::no_sign && code == 8 ? 0 : code;
}

void quantize(const Case& c, Arrays& out, Quantize flaw) {
    const int M = c.size[0], K = c.size[1], B = blocks_of(K);
    const float* x = c.in[0].as<float>();
    for (int m = 0; m < M; ++m) {
        const float* row = x + m * K;
        const float largest = flaw == Quantize::matrix_outer ? amax(x, M * K) : amax(row, K);
        float encode = largest == 0 ? 1.0f : std::min(2688.0f / largest, FLT_MAX);
        if (flaw == Quantize::no_outer) encode = 1;
        if (flaw == Quantize::inverted && largest > 0) encode = largest / 2688.0f;
        const float outer = 1.0f / encode;
        out[2].as<float>()[m] = flaw == Quantize::encode_outer ? encode : outer;
        for (int b = 0; b < B; ++b) {
            const int first = b * kBlock, end = std::min(K, first + kBlock);
            const int beyond = flaw == Quantize::neighbours ? std::min(M * K - m * K, first + kBlock) : end;
            const float wanted = block_scale(amax(row + first, beyond - first), encode, flaw);
            const Rounding rounding = flaw == Quantize::scale_away        ? Rounding::away
                                      : flaw == Quantize::scale_truncated ? Rounding::down
                                                                          : Rounding::even;
            double rounded = round_e4m3(wanted, rounding);
            if (flaw == Quantize::flush && rounded < 0x1p-6) rounded = 0;
            out[1].as<std::uint8_t>()[m * B + b] = static_cast<std::uint8_t>(e4m3_code(rounded));
            const float scale = flaw == Quantize::unrounded && rounded > 0 ? wanted : static_cast<float>(rounded);
            for (int k = first; k < first + kBlock; ++k) {
                const int code = k < end ? element_code(row[k], scale, outer, flaw) : 0;
                std::uint8_t& byte = out[0].as<std::uint8_t>()[m * 8 * B + k / 2];
                const bool high = (k % 2 == 1) != (flaw == Quantize::nibbles);
                byte = static_cast<std::uint8_t>(high ? (byte & 15) | code << 4 : (byte & 0xF0) | code);
            }
        }
    }
}

// --- Dequantise and multiply ---

enum class Gemm {
    nibbles,
    descending,
    flush,
    hidden_bit,
    no_outer,
    no_x_outer,
    no_w_outer,
    outer_inside,
    outer_order,
    half,
    per_element,
    wide,
    toward_zero,
    split,
    one_scale,
    one_scale_of_x,
    one_scale_of_w,
    blocks_first,
    blocks_first_of_x,
    blocks_first_of_w,
    whole_blocks,
    doubled_codes,
    transposed,
    residual_missing,
    residual_first,
    residual_last,
    scale_first
};

float decode_scale(int byte, Gemm flaw) {
    if (flaw == Gemm::flush && byte < 8) return 0.0f;
    if (flaw == Gemm::hidden_bit && byte < 8) return (8 + byte) / 1024.0f;
    return e4m3_value(byte);
}

// A sum in fp16, which has 11 significant bits.
float half_sum(float a, float b) { return static_cast<float>(round_small(a + b, 10, -14, 65504, Rounding::even)); }

float sum_toward_zero(float a, float b) {
    const double exact = double{a} + b;
    const float nearest = static_cast<float>(exact);
    return std::fabs(nearest) > std::fabs(exact) ? std::nextafter(nearest, 0.0f) : nearest;
}

// The scales of one row, by block.
struct Scales {
    const std::uint8_t* first;
    int step;

    std::uint8_t operator[](int b) const { return first[b * step]; }
};

Scales scales_of(const std::uint8_t* scales, int row, int rows, int blocks, Gemm flaw) {
    if (flaw == Gemm::one_scale) return {scales + row * blocks, 0};
    if (flaw == Gemm::blocks_first) return {scales + row, rows};
    return {scales + row * blocks, 1};
}

void dequantize(const Case& c, Arrays& out, Gemm flaw) {
    const int M = c.size[0], K = c.size[1], B = blocks_of(K);
    for (int m = 0; m < M; ++m) {
        const float outer = flaw == Gemm::no_outer ? 1.0f : c.in[2].as<float>()[m];
        for (int k = 0; k < K; ++k) {
            const int shift = 4 * ((k % 2 == 1) != (flaw == Gemm::nibbles));
            const float q = e2m1_value(c.in[0].as<std::uint8_t>()[m * 8 * B + k / 2] >> shift & 15);
            const float s = decode_scale(scales_of(c.in[1].as<std::uint8_t>(), m, M, B, flaw)[k / kBlock], flaw);
            out[0].as<float>()[m * K + k] = flaw == Gemm::scale_first ? q * (s * outer) : q * s * outer;
        }
    }
}

// One packed row.
struct Row {
    const std::uint8_t* codes;
    Scales scales;
};

class Accumulator {
public:
    Accumulator(Gemm flaw, float factor) : flaw_(flaw), factor_(factor) {}

    // Adds the term of block b; `split` sums even and odd blocks on their own.
    void add_block(Row x, Row w, int b) {
        const float scale = decode_scale(x.scales[b], flaw_) * decode_scale(w.scales[b], flaw_);
        float dot = 0;
        for (int i = 0; i < kBlock; ++i) {
            const int byte = b * 8 + i / 2, shift = 4 * (i % 2), x_shift = flaw_ == Gemm::nibbles ? 4 - shift : shift;
            const float product = e2m1_value(x.codes[byte] >> x_shift & 15) * e2m1_value(w.codes[byte] >> shift & 15);
            if (flaw_ == Gemm::per_element) add(product * scale, b);
            dot = flaw_ == Gemm::half ? half_sum(dot, product) : dot + product;
        }
        if (flaw_ != Gemm::per_element) add(flaw_ == Gemm::outer_inside ? dot * scale * factor_ : dot * scale, b);
    }
    float result() const {
        return flaw_ == Gemm::wide ? static_cast<float>(wide_) : flaw_ == Gemm::split ? sum_[0] + sum_[1] : sum_[0];
    }

private:
    void add(float term, int b) {
        float& sum = sum_[flaw_ == Gemm::split ? b % 2 : 0];
        sum = flaw_ == Gemm::toward_zero ? sum_toward_zero(sum, term) : sum + term;
        wide_ += term;
    }

    Gemm flaw_;
    float factor_, sum_[2] = {0, 0};
    double wide_ = 0;
};

// A flaw of x or w alone as seen by that operand.
Gemm index_flaw(Gemm flaw, bool of_w) {
    if (flaw == (of_w ? Gemm::one_scale_of_w : Gemm::one_scale_of_x)) return Gemm::one_scale;
    if (flaw == (of_w ? Gemm::blocks_first_of_w : Gemm::blocks_first_of_x)) return Gemm::blocks_first;
    return flaw;
}

void gemm_w4a4(const Case& c, Arrays& out, bool residual, Gemm flaw) {
    const auto [M, N, K] = c.size;
    const int B = blocks_of(K), summed = flaw == Gemm::whole_blocks ? K / kBlock : B, w_place = residual ? 5 : 3;
    const auto row_of = [&](int place, int row) {
        const Array& scales = c.in[place + 1];
        return Row{c.in[place].as<std::uint8_t>() + row * 8 * B,
                   scales_of(scales.as<std::uint8_t>(), row, scales.rows, B, index_flaw(flaw, place == w_place))};
    };
    const float w_outer = c.in[w_place + 2].as<float>()[0];
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            const Row x = row_of(0, m), r = residual ? row_of(3, m) : x, w = row_of(w_place, n);
            const float x_outer = c.in[2].as<float>()[m];
            const float factor =
                (flaw == Gemm::no_x_outer ? 1.0f : x_outer) * (flaw == Gemm::no_w_outer ? 1.0f : w_outer);
            const bool second_pass = residual && flaw != Gemm::residual_missing;
            Accumulator acc(flaw, factor);
            for (int i = 0; i < summed; ++i) {
                const int b = flaw == Gemm::descending ? B - 1 - i : i;
                if (second_pass && flaw == Gemm::residual_first) acc.add_block(r, w, b);
                acc.add_block(x, w, b);
                if (second_pass && flaw != Gemm::residual_first && flaw != Gemm::residual_last) acc.add_block(r, w, b);
            }
            for (int b = 0; b < B && flaw == Gemm::residual_last; ++b) acc.add_block(r, w, b);
            float y = acc.result() * (flaw == Gemm::doubled_codes ? 4 : 1);
            if (flaw == Gemm::outer_order)
                y = y * x_outer * w_outer;
            else if (flaw != Gemm::no_outer && flaw != Gemm::outer_inside)
                y *= factor;
            out[0].as<float>()[flaw == Gemm::transposed ? n * M + m : m * N + n] = y;
        }
    }
}

// Not a mistake by itself: what the hardware is said to do where the contract asks for one rounding per block.
void gemm_w4a4_blackwell(const Case& c, Arrays& out) {
    const auto [M, N, K] = c.size;
    const auto view = [&](int place, quads::OuterScale outer_scale) {
        return quads::Nvfp4{const_cast<std::uint8_t*>(c.in[place].as<std::uint8_t>()),
                            const_cast<std::uint8_t*>(c.in[place + 1].as<std::uint8_t>()),
                            const_cast<float*>(c.in[place + 2].as<float>()), outer_scale};
    };
    const int offsets[] = {0, M};
    quads::reference::gemm_w4a4_tensor_core(view(0, quads::OuterScale::row), view(3, quads::OuterScale::group),
                                            {offsets, 1}, M, N, K, out[0].as<float>());
}

std::vector<Flaw> gemm_flaws(bool residual) {
    const std::pair<Gemm, const char*> causes[] = {
        {Gemm::nibbles,
         "nibble order: the even column is in the low nibble (bits 0-3); one operand was read the other way"},
        {Gemm::descending, "block order: the terms of the blocks must be added in ascending order, these descend"},
        {Gemm::flush, "E4M3 subnormals: scale bytes 0x01 to 0x07 are byte * 2^-9, they were taken as 0"},
        {Gemm::hidden_bit,
         "E4M3 subnormals: scale bytes 0x00 to 0x07 are byte * 2^-9, they were given the hidden bit of normal numbers"},
        {Gemm::no_outer, "missing global scale: the sum must be multiplied by RN(x_outer[m] * w_outer)"},
        {Gemm::no_x_outer, "missing global scale of x: the sum must be multiplied by RN(x_outer[m] * w_outer)"},
        {Gemm::no_w_outer, "missing global scale of w: the sum must be multiplied by RN(x_outer[m] * w_outer)"},
        {Gemm::outer_inside, "global scale inside the sum: multiply once, after the last block"},
        {Gemm::outer_order,
         "order of the global scales: y = acc * RN(x_outer[m] * w_outer), not (acc * x_outer[m]) * w_outer"},
        {Gemm::half,
         "fp16 accumulation: a block's dot product needs 12 bits, fp16 sums keep 11; accumulate in FP32 or integers"},
        {Gemm::per_element,
         "rounding per element: sum the 16 products of a block first (exactly), then scale and add once"},
        {Gemm::wide,
         "more precise than the contract: the sum over blocks is FP32, rounded after each block, not double"},
        {Gemm::toward_zero, "sums rounded toward zero, as tensor cores do: add the blocks' terms with FP32 additions"},
        {Gemm::split,
         "two partial sums (even and odd blocks): the order of the sum over blocks is fixed, one ascending chain"},
        {Gemm::one_scale, "scale index: the first block's scale was used for every block of the row"},
        {Gemm::one_scale_of_x, "scale index: x's first scale of a row was used for every block of the row"},
        {Gemm::one_scale_of_w, "scale index: w's first scale of a row was used for every block of the row"},
        {Gemm::blocks_first, "scale layout: scales are (rows, blocks), row-major; they were read as (blocks, rows)"},
        {Gemm::blocks_first_of_x, "scale layout: x's scales are (M, blocks), row-major; they were read as (blocks, M)"},
        {Gemm::blocks_first_of_w, "scale layout: w's scales are (N, blocks), row-major; they were read as (blocks, N)"},
        {Gemm::whole_blocks, "last block left out: there are ceil(K / 16) blocks, and the last one may be partial"},
        {Gemm::doubled_codes, "four times too large: products of doubled E2M1 values must be divided by 4"},
        {Gemm::transposed, "transposed output: y is (M, N), row-major"},
        {Gemm::residual_missing, "missing second pass: the residual's terms were not added"},
        {Gemm::residual_first, "order of the passes: in each block the main term comes first, then the residual term"},
        {Gemm::residual_last, "residual appended at the end: each block adds its main term and then its residual term"},
    };
    std::vector<Flaw> flaws;
    for (const auto& [flaw, cause] : causes) {
        if (flaw >= Gemm::residual_missing && !residual) continue;
        flaws.push_back(
            {cause, [residual, flaw = flaw](const Case& c, Arrays& out) { gemm_w4a4(c, out, residual, flaw); }});
    }
    return flaws;
}

}  // namespace

std::vector<Flaw> quantize_flaws() {
    const std::pair<Quantize, const char*> causes[] = {
        {Quantize::nibbles, "nibble order: the even column belongs in the low nibble (bits 0-3)"},
        {Quantize::unrounded, "unrounded scale: inv = 1 / (s * g) takes s after its rounding to E4M3"},
        {Quantize::away,
         "half-away rounding of the codes: a tie goes to the even code (0.25 to 0, 0.75 to 1, 2.5 to 2, 5 to 4)"},
        {Quantize::truncated, "codes truncated toward zero instead of rounded to nearest"},
        {Quantize::scale_away, "half-away rounding of the scales: E4M3 ties go to the even mantissa"},
        {Quantize::scale_truncated, "scales truncated instead of rounded to nearest even"},
        {Quantize::flush, "E4M3 subnormals flushed to 0: scales below 2^-6 are multiples of 2^-9"},
        {Quantize::no_outer,
         "missing global scale: blocks are scaled by Se = 2688 / amax of the row, and outer is 1 / Se"},
        {Quantize::inverted, "global scale inverted: Se = 2688 / amax of the row makes values larger, not amax / 2688"},
        {Quantize::encode_outer, "global scale upside down: outer holds g = 1 / Se, which decodes, not Se"},
        {Quantize::matrix_outer, "global scale of the whole matrix: outer is one per row"},
        {Quantize::order,
         "order of the block scale: s = E4M3(a * (Se * fl(1/6))) as TransformerEngine, not Se * (a * fl(1/6)) as vLLM"},
        {Quantize::divide,
         "divisions: s = E4M3(a * (Se * fl(1/6))) and code = E2M1(x * inv); dividing by 6 or by s * g rounds "
         "otherwise"},
        {Quantize::hardware_zero, "zero scales: a block whose scale rounds to 0 gets codes 0, not +-6"},
        {Quantize::no_sign, "sign of zero: -0 and small negative values have code 8"},
        {Quantize::neighbours, "padding: the amax of the last block took values beyond column K"},
    };
    std::vector<Flaw> flaws;
    for (const auto& [flaw, cause] : causes) {
        flaws.push_back({cause, [flaw = flaw](const Case& c, Arrays& out) { quantize(c, out, flaw); }});
    }
    return flaws;
}

std::vector<Flaw> dequantize_flaws() {
    const std::pair<Gemm, const char*> causes[] = {
        {Gemm::nibbles, "nibble order: the even column is in the low nibble (bits 0-3)"},
        {Gemm::flush, "E4M3 subnormals: scale bytes 0x01 to 0x07 are byte * 2^-9, they were taken as 0"},
        {Gemm::no_outer, "missing global scale: x = (q * s) * outer[m]"},
        {Gemm::one_scale, "scale index: the first block's scale was used for every block of the row"},
        {Gemm::blocks_first, "scale layout: scales are (rows, blocks), row-major; they were read as (blocks, rows)"},
        {Gemm::scale_first, "order: x = (q * s) * g, where q * s is exact; q * (s * g) rounds s * g first"},
    };
    std::vector<Flaw> flaws;
    for (const auto& [flaw, cause] : causes) {
        flaws.push_back({cause, [flaw = flaw](const Case& c, Arrays& out) { dequantize(c, out, flaw); }});
    }
    return flaws;
}

std::vector<Flaw> gemm_w4a4_flaws() {
    std::vector<Flaw> flaws = gemm_flaws(false);
    flaws.push_back(
        {"tensor cores: these are the bits of a published model of Blackwell's mxf4nvf4 instruction; the "
         "contract asks for FP32 additions",
         gemm_w4a4_blackwell});
    return flaws;
}

std::vector<Flaw> gemm_w4a4_residual_flaws() { return gemm_flaws(true); }

}  // namespace verify
