#!/usr/bin/env bash
# The verify tool: every template is exact, and each usual mistake, made in a copy of a template, is named.
#   tests/verify.sh [build folder]
set -u
cd "$(dirname "$0")/.."
build=${1:-build}
export MAKEFLAGS=  # a parent make's job server is not ours
export ASAN_OPTIONS=handle_segv=0:detect_leaks=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# check NAME STATUS EXPECTED-STATUS EXPECTED-TEXT : the output of the tool is in $work/output
check() {
    if [ "$2" -eq "$3" ] && grep -qF -- "$4" "$work/output"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "verify: $1: exit $2, expected $3 and the words: $4"; sed 's/^/    /' "$work/output" | tail -n 12
    fi
}

# The tool is built once with the build's own flags; kernels are compiled here, quickly.
make -s BUILD="$build" "$build/verify_kernel" > "$work/output" 2>&1 || { cat "$work/output"; exit 1; }
try() {
    ${CXX:-c++} -std=c++17 -O1 -ffp-contract=off -fPIC -shared -I. "$2" -o "$work/kernel.so" > "$work/output" 2>&1 &&
        VERIFY_SECONDS=${VERIFY_SECONDS:-60} "$build/verify_kernel" "$1" "$work/kernel.so" > "$work/output" 2>&1
}

for template in tests/verify/templates/*.cpp; do
    name=$(basename "$template" .cpp)
    try "$name" "$template"
    check "$name" $? 0 "$name: exact"
done

# flaw OPERATION CAUSE SED-EXPRESSION...: the template with an edit that must change it
flaw() {
    local name=$1 cause=$2 edits=(); shift 2
    for edit in "$@"; do edits+=(-e "$edit"); done
    sed -E "${edits[@]}" "tests/verify/templates/$name.cpp" > "$work/flawed.cpp"
    if cmp -s "$work/flawed.cpp" "tests/verify/templates/$name.cpp"; then
        echo "verify: no such text in $name: $*"; failed=$((failed + 1)); return
    fi
    try "$name" "$work/flawed.cpp"
    check "$name, $cause" $? 1 "cause: $cause"
}

flaw quantize_nvfp4 'nibble order' 's/pack_codes\((code.*), (code.*)\);/pack_codes(\2, \1);/'
flaw quantize_nvfp4 'unrounded scale' \
    's/scale = quads::e4m3_decode\(scales\[b\]\)/scale = !scales[b] ? 0 : amax(x + first, columns) * (encode * (1.0f \/ 6.0f))/'
flaw quantize_nvfp4 'half-away rounding of the codes' \
    's/e2m1_encode\((x.*)\);/e2m1_encode(std::nextafter(\1, \1 * 2));/'
flaw quantize_nvfp4 'half-away rounding of the scales' \
    's/e4m3_encode\((amax.*)\);/e4m3_encode(std::nextafter(\1, 1e9f));/'
flaw quantize_nvfp4 'E4M3 subnormals flushed' \
    's/^( *const float scale =)/        if (scales[b] < 8) scales[b] = 0;\n\1/'
flaw quantize_nvfp4 'missing global scale' 's/const float encode = .*/const float encode = row_amax * 0 + 1;/'
flaw quantize_nvfp4 'global scale inverted' 's/const float encode = .*/const float encode = row_amax == 0 ? 1 : row_amax \/ 2688.0f;/'
flaw quantize_nvfp4 'global scale upside down' 's/(quantize_row\(x .*);/\1, outer[m] = 2688 \/ amax(x + m * K, K);/'
flaw quantize_nvfp4 'order of the block scale' \
    's/amax\(x \+ first, columns\) \* \(encode \* \(1.0f \/ 6.0f\)\)/encode * (amax(x + first, columns) * (1.0f \/ 6.0f))/'
flaw quantize_nvfp4 'zero scales' 's/ \&\& scale != 0.0f//'
flaw quantize_nvfp4 'sign of zero' 's/quads::e2m1_encode\((.*)\);/unsigned_zero(\1);/' \
    's/^float amax/uint8_t unsigned_zero(float x) { const int c = quads::e2m1_encode(x); return c == 8 ? 0 : c; }\n&/'
flaw quantize_nvfp4 'global scale of the whole matrix' 's/row_amax = amax\(x, K\)/row_amax = whole/' \
    's/^namespace \{/&\nfloat whole;/' 's/^    const int B = .*/&\n    whole = amax(x, M * K);/'
flaw dequantize_nvfp4 'nibble order' 's/code_at\((.*), k\)/code_at(\1, k ^ 1)/'
flaw dequantize_nvfp4 'E4M3 subnormals' 's/s = (quads::e4m3_decode.*);/s = scales[m * B + k \/ 16] < 8 ? 0 : \1;/'
flaw dequantize_nvfp4 'missing global scale' 's/ \* outer\[m\]//'
flaw dequantize_nvfp4 'order: x = (q * s) * g' 's/\(q \* s\) \* outer\[m\]/q * (s * outer[m])/'
flaw dequantize_nvfp4 'scale layout' 's/scales\[m \* B \+ k \/ 16\]/scales[k \/ 16 * M + m]/'
flaw gemm_w4a4 'nibble order' 's/code_at\(x, i\)/code_at(x, i ^ 1)/'
flaw gemm_w4a4 'block order' 's/for \(int b = 0; b < B; \+\+b\)/for (int b = B - 1; b >= 0; --b)/'
flaw gemm_w4a4 'E4M3 subnormals' \
    's/quads::e4m3_decode\(([a-z_]*)\[(..)\]\)/(\1[\2] < 8 ? 0.0f : quads::e4m3_decode(\1[\2]))/g'
flaw gemm_w4a4 'E4M3 subnormals: scale bytes 0x00' \
    's/quads::e4m3_decode\(([a-z_]*)\[(..)\]\)/(\1[\2] < 8 ? (8 + \1[\2]) \/ 1024.0f : quads::e4m3_decode(\1[\2]))/g'
flaw gemm_w4a4 "scale index: w's" 's/w_scales\[wb\]/w_scales[n * B]/'
flaw gemm_w4a4 'scale layout: scales' 's/x_scales\[xb\]/x_scales[b * M + m]/' 's/w_scales\[wb\]/w_scales[b * N + n]/'
flaw gemm_w4a4 "scale layout: x's" 's/x_scales\[xb\]/x_scales[b * M + m]/'
flaw gemm_w4a4_residual "scale layout: w's" 's/w_scales\[(n \* B \+ b|wb)\]/w_scales[b * N + n]/'
flaw gemm_w4a4 'missing global scale: ' 's/acc \* \(.*\);/acc;/'
flaw gemm_w4a4 'missing global scale of x' 's/x_outer\[m\] \* //'
flaw gemm_w4a4 'missing global scale of w' 's/ \* w_outer\[0\]//'
flaw gemm_w4a4 'last block left out' 's/b < B;/b < K \/ 16;/'
flaw gemm_w4a4 'four times too large' 's/ \* 0.25f//'
flaw gemm_w4a4 'global scale inside the sum' 's/(\* 0.25f \* scale);/\1 * (x_outer[m] * w_outer[0]);/' \
    's/acc \* \(.*\);/acc;/'
flaw gemm_w4a4 'order of the global scales' 's/acc \* \((.*)\);/acc * \1;/'
flaw gemm_w4a4 'sums rounded toward zero' 's/acc \+= (.*);/acc = toward_zero((double)acc + \1);/' \
    's/^namespace \{/#include <cmath>\nnamespace {\nfloat toward_zero(double x) { float y = x; return std::fabs(y) > std::fabs(x) ? std::nextafter(y, 0.0f) : y; }/'
flaw gemm_w4a4 'fp16 accumulation' 's/int sum = 0;/float sum = 0;/' 's/^int dot4/float dot4/' \
    's/sum \+= (quads.*);/sum = half(sum + 0.25f * (\1));/' 's/return sum;/return 4 * sum;/' \
    's/^namespace \{/#include <cmath>\nnamespace {\nfloat half(float x) { int e; std::frexp(x, \&e); return std::ldexp(std::nearbyint(std::ldexp(x, 11 - e)), e - 11); }/'
flaw gemm_w4a4 'more precise than the contract' 's/float acc = /double acc = /' 's/= acc \*/= float(acc) */'
flaw gemm_w4a4_residual 'missing second pass' 's/acc \+= dot4\(residual_codes/if (M < 0) acc += dot4(residual_codes/'
flaw gemm_w4a4_residual 'order of the passes' 's/(dot4|decode)\(x_/\1(other_/g' 's/(dot4|decode)\(residual_/\1(x_/g' \
    's/\(other_/(residual_/g'
flaw gemm_bf16 'order of the sum' 's/for \(int k = 0; k < K; \+\+k\)/for (int k = K - 1; k >= 0; --k)/'
flaw gemm_bf16 'output rounded to BF16' 's/= acc;/= quads::bf16_round(acc);/'
flaw gemm_bf16 'transposed weights' 's/w\[n \* K \+ k\]/w[k * N + n]/'
flaw rmsnorm 'missing epsilon' 's/ \+ 1e-6f//'
flaw rmsnorm 'order of the factors' 's/\(row\[d\] \* rstd\[t\]\) \* g\[d\]/(row[d] * g[d]) * rstd[t]/'
flaw router_topk 'equal logits' 's/logits\[e\] > logits/logits[e] >= logits/'
flaw router_topk 'gates not normalised' 's/ \/ chosen//'

# What has nothing to do with numbers.
crash() {
    sed -E "$4" tests/verify/templates/rmsnorm.cpp > "$work/flawed.cpp"
    VERIFY_SECONDS=2 try rmsnorm "$work/flawed.cpp"
    check "rmsnorm, $1" $? "$2" "$3"
}
crash 'a crash' 1 'signal 11' 's/rstd\[t\] = .*/*(volatile int*)8 = 1;/'
crash 'a hang' 1 'had not finished after 2 s' 's/rstd\[t\] = .*/for (volatile int i = 0;; i = i + 1) {}/'
crash 'writes behind an output' 1 'bytes outside the output rstd' 's/^    for \(int t = 0; t < T; \+\+t\)/    rstd[T] = 0;\n&/'
crash 'an input changed' 1 'the input x' 's/rstd\[t\] = .*/&  const_cast<float*>(row)[0] += 1;/'
crash 'outputs not written' 1 'never written?' 's/T; \+\+t/T - 1; ++t/'
crash 'no symbol' 2 'exports no kernel_rmsnorm' 's/kernel_rmsnorm/kernel_other/'

# Through make.
by_make() {
    make -s BUILD="$build" "${@:4}" > "$work/output" 2>&1
    check "$1" $? "$2" "$3"
}
by_make 'no file' 2 'make template OP=gemm_w4a4' verify OP=gemm_w4a4 KERNEL="$work/none.cpp"
by_make 'no operation' 2 'Choose an operation' verify OP=gemm_w4a5 KERNEL="$work/none.cpp"
by_make 'template' 0 'is written' template OP=rmsnorm KERNEL="$work/mine.cpp"
by_make 'template exists' 2 'left alone' template OP=rmsnorm KERNEL="$work/mine.cpp"
by_make 'verify' 0 'rmsnorm: exact' verify OP=rmsnorm KERNEL="$work/mine.cpp"
by_make 'no GPU' 2 'needs nvcc and a GPU' verify NVCC= OP=rmsnorm KERNEL=tests/verify/templates/rmsnorm.cu
if nvidia-smi > /dev/null 2>&1 && { command -v nvcc > /dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }; then
    for template in tests/verify/templates/*.cu; do
        name=$(basename "$template" .cu)
        by_make "$name on the GPU" 0 "$name: exact" verify OP="$name" KERNEL="$template"
    done
    by_make 'the stub of lab 08' 2 'NOT exact' verify OP=gemm_w4a4 KERNEL=notebooks/labs/08_cuda_gemm.cu
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
