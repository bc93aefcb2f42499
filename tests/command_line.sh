#!/usr/bin/env bash
# The program as its users meet it: exit statuses, one-sentence errors, a run killed and resumed. Run by `make test`;
# takes the build folder, ends with `N passed, N failed`.
set -u
cd "$(dirname "$0")/.."
quads=${1:-build}/quads
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0
# Leak checks at exit would cost more than the runs themselves in a sanitizer build.
export ASAN_OPTIONS=detect_leaks=0

verdict() {  # verdict STATUS NAME [DETAIL]
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $2"
        [ -z "${3:-}" ] || sed 's/^/    /' <<< "$3"
    fi
}

# refuses PATTERN ARGUMENTS... : exit status 1, and one sentence that holds PATTERN on stderr.
refuses() {
    local pattern=$1; shift
    local status said
    "$quads" "$@" > "$folder/stdout" 2> "$folder/stderr"
    status=$?
    said=$(cat "$folder/stderr")
    [ "$status" -eq 1 ] && [ "$(wc -l <<< "$said")" -eq 1 ] && grep -qE "^quads: .*\.$" <<< "$said" &&
        grep -qF -- "$pattern" <<< "$said"
    verdict $? "quads $* should say '$pattern'" "status $status: $said"
}

# works NAME ARGUMENTS... : exit status 0.
works() {
    local name=$1; shift
    "$quads" "$@" > "$folder/stdout" 2> "$folder/stderr"
    verdict $? "$name" "$(cat "$folder/stderr")"
}

same() { cmp -s "$1" "$2"; verdict $? "$3" "$1 and $2 differ"; }

# npy FILE DESCR SHAPE BYTES : BYTES as printf escapes.
npy() {
    local header="{'descr': '$2', 'fortran_order': ${5:-False}, 'shape': $3, }"
    { printf "\\x93NUMPY\\x01\\x00\\x$(printf '%02x' ${#header})\\x00"; printf '%s' "$header"; printf "$4"; } > "$1"
}
repeat() { local i; for ((i = 0; i < $2; ++i)); do printf '%s' "$1"; done; }

### Help and unknown names
works "quads --help" --help
for command in pretrain train eval gap reproduce chart op bench; do
    works "quads $command --help" "$command" --help
    grep -q "^usage: quads $command" "$folder/stdout"
    verdict $? "quads $command --help shows its usage"
done
refuses "expected a command"
refuses "nearest is train" trian
refuses "nearest is --resume" train --resum
refuses "--seed needs a value" train --seed
refuses "--resume takes no value" train --resume=yes
refuses "given twice" train --seed 1 --seed 2
refuses "takes options only" train now

### quads op
one='\x00\x00\x80\x3f' nan='\x00\x00\xc0\x7f' infinity='\x00\x00\x80\xff'
npy "$folder/x.npy" '<f4' '(3, 17)' "$(repeat $one 51)"
npy "$folder/w.npy" '<f4' '(2, 17)' "$(repeat $one 34)"
npy "$folder/narrow.npy" '<f4' '(2, 16)' "$(repeat $one 32)"
npy "$folder/nan.npy" '<f4' '(3, 17)' "$(repeat $one 40)$nan$(repeat $one 10)"
npy "$folder/infinity.npy" '<f4' '(1, 1)' "$infinity"
npy "$folder/empty.npy" '<f4' '(3, 0)' ''
npy "$folder/line.npy" '<f4' '(17,)' "$(repeat $one 17)"
npy "$folder/double.npy" '<f8' '(1, 1)' "$one$one"
npy "$folder/fortran.npy" '<f4' '(2, 2)' "$(repeat $one 4)" True
npy "$folder/short.npy" '<f4' '(3, 18)' "$(repeat $one 51)"
npy "$folder/scales.npy" '|u1' '(1, 1)' '\xff'
npy "$folder/codes.npy" '|u1' '(1, 8)' "$(repeat '\x22' 8)"
npy "$folder/outer.npy" '<f4' '(1,)' "$one"
results="$folder/out"
works "quantise x" op quantize_nvfp4 "$folder/x.npy" --out "$results/x"
works "quantise w" op quantize_nvfp4 "$folder/w.npy" --outer matrix --out "$results/w"
works "GEMM of x and w" op gemm_w4a4 "$folder/x.npy" "$folder/w.npy" --out "$results/y"
works "GEMM of packed x and w" op gemm_w4a4 --packed "$results"/x/{codes,scales,outer}.npy \
    "$results"/w/{codes,scales,outer}.npy --out "$results/packed"
same "$results/y/y.npy" "$results/packed/y.npy" "packed and unpacked GEMM agree"
works "GEMM in BF16" op gemm_bf16 "$folder/x.npy" "$folder/w.npy" --out "$results/bf16"
refuses "nearest is quantize_nvfp4" op quantise_nvfp4 "$folder/x.npy" --out "$results/no"
refuses "takes 2 files, found 1" op gemm_w4a4 "$folder/x.npy" --out "$results/no"
refuses "takes 6 files" op gemm_w4a4 --packed "$folder/x.npy" --out "$results/no"
refuses "needs --out" op quantize_nvfp4 "$folder/x.npy"
refuses "does not apply" op quantize_nvfp4 "$folder/x.npy" --ratio 0.5 --out "$results/no"
refuses "expected 0 to 1" op gemm_w4a4_residual "$folder/x.npy" "$folder/w.npy" --ratio 1.5 --out "$results/no"
refuses "nearest valid name is token" op gemm_w4a4_residual "$folder/x.npy" "$folder/w.npy" --select tokens --out "$results/no"
refuses "the same K" op gemm_bf16 "$folder/x.npy" "$folder/narrow.npy" --out "$results/no"
refuses "at row 2, column 6" op quantize_nvfp4 "$folder/nan.npy" --out "$results/no"
refuses "holds -inf at row 0, column 0" op gemm_bf16 "$folder/infinity.npy" "$folder/w.npy" --out "$results/no"
refuses "(3, 0)" op quantize_nvfp4 "$folder/empty.npy" --out "$results/no"
refuses "expected a float32 matrix" op quantize_nvfp4 "$folder/line.npy" --out "$results/no"
refuses "expected a float32 matrix" op quantize_nvfp4 "$folder/codes.npy" --out "$results/no"
refuses "expected float32" op quantize_nvfp4 "$folder/double.npy" --out "$results/no"
refuses "Fortran" op quantize_nvfp4 "$folder/fortran.npy" --out "$results/no"
refuses "truncated" op quantize_nvfp4 "$folder/short.npy" --out "$results/no"
refuses "No such file" op quantize_nvfp4 "$folder/missing.npy" --out "$results/no"
refuses "holds byte 255" op dequantize_nvfp4 "$folder/codes.npy" "$folder/scales.npy" "$folder/outer.npy" --out "$results/no"
[ ! -e "$results/no" ]
verdict $? "refused input leaves nothing behind"
refuses "cannot create the folder" op quantize_nvfp4 "$folder/x.npy" --out "$folder/x.npy/below"

### Bad input to the commands that train
head -n 16 data/heldout.txt > "$folder/heldout.txt"
small=(--device cpu --set grpo.prompts=4 --set grpo.group=4 --set evaluation.every=4 --set checkpoint_every=3
       --set "heldout=$folder/heldout.txt")
run() {  # run NAME ARGUMENTS... : a short run with the log and checkpoint NAME
    local name=$1; shift
    "$quads" train "${small[@]}" --log "$folder/$name.jsonl" --checkpoint "$folder/$name.safetensors" "$@"
}
trains() { refuses "$1" train "${small[@]}" --log "$folder/no.jsonl" --checkpoint "$folder/no.safetensors" "${@:2}"; }
trains "nearest is quads" --mode quad
trains "nearest is 'grpo.clip_high'" --set grpo.clip_hihg=0.3
trains "'steps'" --steps 0
trains "missing.safetensors" --set base="$folder/missing.safetensors"
head -c 1000 data/base.safetensors > "$folder/truncated.safetensors"
trains "truncated" --set base="$folder/truncated.safetensors"
trains "x.npy" --set base="$folder/x.npy"
trains "heldout" --set heldout="$folder/no_heldout.txt"
trains "model" --set model.layers=4
[ ! -e "$folder/no.jsonl" ] && [ ! -e "$folder/no.safetensors" ]
verdict $? "a refused run leaves no log and no checkpoint"
refuses "cannot" train "${small[@]}" --log "$folder/x.npy/run.jsonl" --checkpoint "$folder/no.safetensors"
refuses "missing.safetensors" gap --device cpu --checkpoint "$folder/missing.safetensors"
refuses "missing.safetensors" eval --device cpu --checkpoint "$folder/missing.safetensors"
refuses "niave" reproduce --modes bf16,niave --out "$folder/no"

### A run is the same whatever the threads, and survives a kill at any moment
agree() {  # agree A B NAME : logs but for seconds, and checkpoints
    [ "$(.ci/without_seconds "$folder/$1.jsonl")" = "$(.ci/without_seconds "$folder/$2.jsonl")" ]
    verdict $? "$3: logs"
    same "$folder/$1.safetensors" "$folder/$2.safetensors" "$3: checkpoints"
}
run whole --mode quads --steps 8 --threads 1 > "$folder/stdout" 2> "$folder/stderr"
verdict $? "a run of 8 steps" "$(cat "$folder/stderr")"
[ "$(wc -l < "$folder/whole.jsonl")" -eq 9 ]
verdict $? "a log has a line for the configuration and one per step"
run threads --mode quads --steps 8 --threads 2 > /dev/null 2>&1
agree whole threads "1 and 2 threads"
cp "$folder/whole.jsonl" "$folder/kept.jsonl"
refuses "--resume" train "${small[@]}" --steps 8 --log "$folder/whole.jsonl" --checkpoint "$folder/whole.safetensors"
same "$folder/whole.jsonl" "$folder/kept.jsonl" "a finished log is not overwritten"
refuses "8 steps" train "${small[@]}" --steps 5 --resume --log "$folder/whole.jsonl" --checkpoint "$folder/whole.safetensors"
same "$folder/whole.jsonl" "$folder/kept.jsonl" "fewer steps than done lose nothing"

for lines in 2 5; do  # killed between the checkpoint of step 0 or 3 and the next
    # Not by run(): the process to kill must be the program's own, not that of a shell around it.
    "$quads" train "${small[@]}" --mode quads --steps 8 --log "$folder/killed.jsonl" \
        --checkpoint "$folder/killed.safetensors" > /dev/null 2>&1 &
    process=$!
    for ((i = 0; i < 3000; ++i)); do
        [ "$(wc -l 2> /dev/null < "$folder/killed.jsonl" || echo 0)" -gt "$lines" ] && break
        kill -0 $process 2> /dev/null || break
        sleep 0.02
    done
    kill -9 $process 2> /dev/null
    wait $process 2> /dev/null
    printf '{"step":9,"rew' >> "$folder/killed.jsonl"  # the torn line of a kill inside write()
    run killed --mode quads --steps 8 --resume > /dev/null 2> "$folder/stderr"
    verdict $? "a killed run resumes" "$(cat "$folder/stderr")"
    agree whole killed "killed after $lines lines and resumed"
    rm -f "$folder"/killed.*
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
