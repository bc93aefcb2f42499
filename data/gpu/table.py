"""Tables of data/gpu/bench-h200.json in Markdown: python3 data/gpu/table.py [--readme README.md]

Prints them, or with --readme writes them between the lines <!-- gpu-bench --> and <!-- /gpu-bench --> of that file.
"""
import argparse
import json
import pathlib

FILE = pathlib.Path(__file__).with_name("bench-h200.json")
BEGIN, END = "<!-- gpu-bench -->", "<!-- /gpu-bench -->"

LESSONS = {
    "1_naive": "a thread per output (or scale block): the formulas, nothing else",
    "2_shared": "operands decoded once into shared memory",
    "2_warp": "a warp per row: neighbouring lanes read neighbouring numbers",
    "3_dp4a": "twice an E2M1 value is an integer: four exact products an instruction",
    "3_tuned": "16-byte loads, the row stays in registers, codes by one rounding addition",
    "4_mma": "tensor cores with C = 0: exact block dots, one FP32 addition per scale block",
    "4_residual": "main pass and token-selected residual in one kernel",
    "5_decode": "weights prepacked in fragment order, streamed once and decoded once for all tokens",
    "5_decode_split": "the same with the sum over K in ranges, another operation: more warps, added in order",
    "6_prefill": "128 x 128 tiles, operands decoded once per tile, ldmatrix",
    "7_emulated": "Blackwell's block-scaled fragments, emulated; the native instruction has not been run",
    "8_prefill_sm90a": "operands decoded once per GEMM, bulk copies, wgmma",
}


def ratio(value):
    return "–" if value is None else f"{value:.2f}x"


def rate(entry):
    """TFLOP/s of a dense GEMM, where the shape names M, N and K."""
    words = entry["shape"].split()
    if words[0] != "M" or "N" not in words or entry["limit"] == "copy bandwidth":
        return "–"
    size = {words[i]: int(words[i + 1]) for i in range(0, len(words), 2)}
    passes = 2 if "residual" in entry["op"] else 1
    return f"{2 * passes * size['M'] * size['N'] * size['K'] / entry['us'] * 1e-6:.0f}"


def table(entries, columns):
    rows = [[text(entry) for _, text in columns] for entry in entries]
    lines = ["| " + " | ".join(name for name, _ in columns) + " |", "|" + " --- |" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def ladder(entries, op, shape):
    chosen = sorted((e for e in entries if e["op"] == op and e["shape"] == shape), key=lambda e: e["rung"])
    columns = [
        ("rung", lambda e: f"`{e['rung']}`"), ("µs", lambda e: f"{e['us']:.1f}"), ("TFLOP/s", rate),
        ("share of limit", lambda e: f"{100 * e['share_of_limit']:.1f} %"),
        ("vs cuBLAS BF16", lambda e: ratio(e["vs_cublas_bf16"])),
        ("what it teaches", lambda e: LESSONS.get(e["rung"].rstrip("0123456789"), "the yardstick"))]
    return table(chosen, [c for c in columns if any(c[1](e) != "–" for e in chosen)])


def sweep(entries, ops):
    return table([e for e in entries if e["op"] in ops], [
        ("operation", lambda e: e["op"]), ("shape", lambda e: e["shape"]), ("kernel", lambda e: f"`{e['rung']}`"),
        ("µs", lambda e: f"{e['us']:.1f}"), ("share of limit", lambda e: f"{100 * e['share_of_limit']:.1f} %"),
        ("vs cuBLAS BF16", lambda e: ratio(e["vs_cublas_bf16"])), ("vs cuBLASLt FP8", lambda e: ratio(e["vs_cublas_fp8"]))])


def text_of(entries):
    first = entries[0]
    tuned = [e for e in entries if e["rung"] not in ("1_naive", "2_shared", "2_warp", "3_dp4a", "4_mma", "7_emulated")]
    parts = [
        f"{first['card']}, driver {first['driver']}, CUDA {first['toolkit']}, {first['date']}, `{first['command']}`. "
        f"Limits measured in the same run: copy {first['copy_bytes_per_s'] * 1e-12:.2f} TB/s (bytes read and written), "
        f"cuBLAS BF16 {first['bf16_flop_per_s'] * 1e-12:.0f} TFLOP/s.",
        "**Quantise ladder, M 8192 K 4096** (share of copy bandwidth)", ladder(entries, "quantize", "M 8192 K 4096"),
        "**W4A4 ladder, decode, M 16 N 4096 K 4096** (share of copy bandwidth)",
        ladder(entries, "decode", "M 16 N 4096 K 4096"),
        "**W4A4 ladder, prefill, M 4096 N 4096 K 4096** (share of the BF16 tensor rate)",
        ladder(entries, "prefill", "M 4096 N 4096 K 4096"),
        "<details><summary>All shapes</summary>",
        sweep(tuned, {e["op"] for e in entries}), "</details>"]
    return "\n\n".join(parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--readme", type=pathlib.Path)
    arguments = parser.parse_args()
    text = text_of(json.loads(FILE.read_text()))
    if arguments.readme is None:
        print(text)
        return
    readme = arguments.readme.read_text()
    if BEGIN not in readme or END not in readme:
        raise SystemExit(f"{arguments.readme} has no lines {BEGIN} and {END}: add them where the tables belong.")
    before, after = readme.split(BEGIN)[0], readme.split(END)[1]
    arguments.readme.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


main()
