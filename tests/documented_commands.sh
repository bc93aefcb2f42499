#!/usr/bin/env bash
# Runs every command that README.md and notebooks/TEACHING.md show in a ```sh block, in a copy of the repository made of
# links, so that what they write is thrown away. Each command must be run, shortened or left out here for a reason.
#   tests/documented_commands.sh [build folder]
set -u
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")
export MAKEFLAGS= BUILD=build
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# The reason why a command is not run here; empty: it is.
reason_to_skip() {
    case $1 in
        "make test" | "make test "* | "make exhaustive") echo "this is one of its tests" ;;
        "make demo" | "make reproduce" | "make base" | "make bench")
            echo "minutes; tests/command_line.sh runs the program" ;;
        "make notebooks" | "make test-notebooks") echo "a part of .ci/run of its own" ;;
        "make cuda"* | "make test-gpu" | "make bench-gpu"*) echo "needs a GPU" ;;
    esac
}

# The command made short, without changing what it says.
shortened() {
    case $1 in
        "build/quads train "*) echo "$1 --set grpo.prompts=2" | sed -E 's/--steps [0-9]+/--steps 2/' ;;
        "build/quads gap"*) echo "$1 --mode quads --set grpo.prompts=2" ;;
        "build/quads eval"*) echo "$1 --mode quads --set evaluation.responses=1" ;;
        *) echo "$1" ;;
    esac
}

commands() {
    awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on' "$1" | sed -E 's/ +# .*//; s/ +$//' | grep -vE '^(#|$)'
}

# A float32 matrix of ones, 2 x 16, as .npy: magic, version 1.0, length of the header, header, data.
ones_npy() {
    local header="{'descr': '<f4', 'fortran_order': False, 'shape': (2, 16), }"
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$header"
    for ((i = 0; i < 32; ++i)); do printf '\x00\x00\x80\x3f'; done
}

mkdir "$work/build"
for entry in * .ci; do [ "$entry" = build ] || ln -s "$PWD/$entry" "$work/$entry"; done
for entry in "$build"/*; do ln -s "$entry" "$work/build/"; done
rm -f "$work"/build/my_* "$work"/build/run.*
cd "$work" || exit 1
ones_npy > x.npy
cp x.npy w.npy

for page in README.md notebooks/TEACHING.md; do
    count=0
    rm -f build/my_* build/run.*  # what the other page's commands wrote
    while IFS= read -r command; do
        count=$((count + 1))
        reason=$(reason_to_skip "$command")
        [ -n "$reason" ] && { echo "documented_commands: left out, $reason: $command"; continue; }
        if timeout 300 bash -c "$(shortened "$command")" > output 2>&1 < /dev/null; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1)); echo "documented_commands: $page: $command"; tail -n 8 output | sed 's/^/    /'
        fi
    done < <(commands "$page")
    [ "$count" -gt 0 ] || { failed=$((failed + 1)); echo "documented_commands: no command found in $page"; }
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
