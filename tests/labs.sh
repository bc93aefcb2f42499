#!/usr/bin/env bash
# The labs: every committed stub fails every test by saying that it is not written, and the reference passes them all.
#   tests/labs.sh [build folder]
set -u
cd "$(dirname "$0")/.."
build=${1:-build}
export MAKEFLAGS=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

count() {
    if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else
        failed=$((failed + 1)); echo "labs: $2"; tail -n 12 "$work/output" | sed 's/^/    /'
    fi
}

# The stubs as they were committed: a student's own files may be finished.
mkdir "$work/stubs"
cp notebooks/labs/* "$work/stubs/"
for file in notebooks/labs/0*; do
    git show "HEAD:$file" > "$work/committed" 2> /dev/null && cp "$work/committed" "$work/stubs/$(basename "$file")"
done

make -s BUILD="$build" SUBMISSION="$work/stubs" grade > "$work/stub_grades" 2> "$work/output"
count $? 'make grade on the stubs'
for lab in 01 02 03 04 05 06 07; do
    "$build/labs/lab$lab" "[lab$lab]" > "$work/output" 2>&1
    tests=$(grep -c '^TEST_CASE' "tests/labs/lab$lab.cpp")
    [ "$(grep -c 'is not written yet' "$work/output")" -eq "$tests" ] &&
        grep -qE "^test cases: +$tests \| +$tests failed" "$work/output"
    count $? "stub $lab: not every test fails with 'is not written yet'"
    grep -qxF "{\"lab\": \"$lab\", \"passed\": 0, \"tests\": $tests, \"score\": 0.00}" "$work/stub_grades"
    count $? "stub $lab: its grade"
    LAB_SOLUTION=1 tests/labs/run_lab "$build/labs/lab$lab" "$lab" > "$work/output" 2>&1
    count $? "solution $lab"
    grep -qx "lab $lab: $tests of $tests tests pass" "$work/output"
    count $? "solution $lab: the closing line"
done

# A half-done lab gets part of the score, and a crash costs one test.
sed 's/throw NotWritten("e2m1_decode");/const float v[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6}; DONE/
     s/DONE/return code \& 8 ? -v[code \& 7] : v[code];/
     s/throw NotWritten("pack_row");/*(volatile int*)8 = 1;/' "$work/stubs/01_codec.cpp" > "$work/01_codec.cpp"
make -s BUILD="$build" SUBMISSION="$work" LAB=01 lab > "$work/output" 2>&1
grep -q 'lab 01: 1 of 7 tests pass' "$work/output" && grep -q 'pass  1. E2M1 decodes' "$work/output"
count $? 'a lab half done'

# What is missing, does not compile or ends the program gets 0 with a reason; the others are graded all the same.
class="$work/first student"
mkdir "$class"
cp "$work/01_codec.cpp" "$class"
sed 's/throw NotWritten/return "zero" +/' "$work/stubs/02_quantiser.cpp" > "$class/02_quantiser.cpp"
sed 's/throw NotWritten.*;/std::exit(0);/; 1i #include <cstdlib>' "$work/stubs/03_gemm_w4a4.cpp" \
    > "$class/03_gemm_w4a4.cpp"
make -s BUILD="$build" SUBMISSION="$class" grade > "$work/output" 2>&1
count $? 'make grade on a part of the labs'
grade() {
    grep -qxE "\{\"lab\": \"$1\", \"passed\": $2, \"tests\": $3, \"score\": $4\}" "$work/output"
    count $? "grade of lab $1"
}
grade 01 1 7 '0.14'
grade 02 0 6 '0.00, "error": "The file does not compile: .*first student/02_quantiser.cpp:[0-9]+.*error: .*"'
grade 03 0 6 '0.00'
grade 04 0 6 '0.00, "error": "There is no file .*first student/04_\*.cpp."'
make -s BUILD="$build" SUBMISSION="$work/nobody" grade > "$work/output" 2>&1
[ $? -ne 0 ] && grep -qx "There is no folder $work/nobody." "$work/output"
count $? 'make grade without a folder'

if command -v nvcc > /dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    make -s BUILD="$build" SUBMISSION="$work/stubs" LAB=08 lab > "$work/output" 2>&1
    grep -qE 'compiles. There is no GPU|NOT exact' "$work/output"
    count $? 'stub 08'
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
