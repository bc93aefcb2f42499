#!/usr/bin/env bash
# The C library as its users meet it: the header in C99, a C program, and the Python examples where numpy is installed.
#   tests/c_library.sh [build folder]
set -u
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")
export MAKEFLAGS= QUADS_BUILD=$build
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

check() {
    local name=$1; shift
    if "$@" > "$work/output" 2>&1; then passed=$((passed + 1)); else
        failed=$((failed + 1)); echo "c_library: $name failed:"; tail -n 12 "$work/output" | sed 's/^/    /'
    fi
}

check 'make library' make -s BUILD="$build" library
# A sanitized library needs a sanitized program.
sanitize=$(nm -D "$build/libquads_reference.so" | grep -q __asan && echo -fsanitize=address,undefined)
c_compiler=$(case ${CXX:-g++} in *clang*) echo clang ;; *) echo gcc ;; esac)
check 'C99 program compiles' $c_compiler -std=c99 -pedantic -Wall -Wextra -Werror $sanitize \
    -I. notebooks/examples/quantize.c -L"$build" -lquads_reference -Wl,-rpath,"$build" -o "$work/quantize"
check 'C99 program runs' bash -c '"$1" > "$2"' - "$work/quantize" "$work/said"
check 'it says what is wrong' grep -q 'refused: .*row 0, column 3' "$work/said"

# The environment of the notebooks lies in the build folder.
for python in "$build"/*/bin/python3 /usr/bin/python3 python3; do
    "$python" -c 'import numpy' 2> /dev/null && break
done
if [ -n "$sanitize" ] || ! "$python" -c 'import numpy' 2> /dev/null; then
    echo "c_library: the Python examples need numpy and a library without sanitizers; left out."
else
    check 'numpy example' "$python" notebooks/examples/check_numpy_kernel.py
    check 'tensor example' "$python" notebooks/examples/check_torch_tensor.py
    # The examples must be able to fail.
    sed 's/one \/ six/one \/ six * np.float32(1.01)/' notebooks/examples/check_numpy_kernel.py > "$work/flawed.py"
    sed 's/range(x_values.shape\[1\])/reversed(&)/' notebooks/examples/check_torch_tensor.py > "$work/reversed.py"
    check 'a wrong numpy kernel is found' bash -c '! "$1" "$2" > "$3"' - "$python" "$work/flawed.py" "$work/said"
    check 'it is said to be wrong' grep -q 'NOT exact' "$work/said"
    check 'a wrong block order is found' bash -c '! "$1" "$2" > "$3"' - "$python" "$work/reversed.py" "$work/said"
    check 'it is said where' grep -q 'differ' "$work/said"
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
