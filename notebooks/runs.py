"""The program build/quads, its logs and checkpoints, and the look of plots."""
import json
import subprocess

import matplotlib.pyplot as plt
import numpy as np

from quads import ROOT, built

COLORS = {"bf16": "#555555", "fp8": "#8c6bb1", "naive": "#d62728", "weight_only": "#ff9896", "symmetric": "#ff7f0e",
          "asymmetric": "#bcbd22", "residual": "#17becf", "quads": "#1f77b4", "quads_token": "#2ca02c"}

plt.rcParams.update({
    "figure.figsize": (7.5, 3.2), "figure.dpi": 80, "savefig.bbox": "tight", "font.size": 9, "axes.grid": True,
    "axes.axisbelow": True, "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False,
    "legend.frameon": False})


def program(*arguments):
    """Runs `build/quads ...` on the CPU from the root of the repository; its standard output."""
    command = [str(built("quads")), *map(str, arguments), "--device", "cpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def read_log(path):
    """(configuration, steps): the first line of a log, and its fields as arrays over the steps."""
    config, *steps = [json.loads(line) for line in open(path)]
    fields = [name for name in steps[0] if name != "heldout_pass1"]
    return config, {name: np.array([step[name] for step in steps]) for name in fields}


def load_runs(folder):
    """{mode: {seed: steps}} of every log of a folder of data/runs, modes in the order of COLORS."""
    runs = {mode: {} for mode in COLORS}
    for path in sorted((ROOT / "data" / "runs" / folder).glob("*.jsonl")):
        config, steps = read_log(path)
        runs[config["mode"]][config["seed"]] = steps
    return {mode: seeds for mode, seeds in runs.items() if seeds}


def read_checkpoint(path="data/base.safetensors"):
    """(configuration, {name: float32 array}) of a checkpoint: 8 bytes of length, a JSON header, then the numbers."""
    data = (ROOT / path).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    config = json.loads(header.pop("__metadata__")["config"])
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[start + begin:start + end], np.float32).reshape(entry["shape"])
    return config, tensors


def read_gap(text):
    """{mode: {column: number}} of the first table that `quads gap` prints."""
    terms = ["gap", "num", "weight", "act"]
    columns = [name for term in terms for name in (term, term + "_max")] + ["router_flips", "code_flips"]
    columns += ["unlikely_tokens", "unlikely_gap"]
    rows = [line.split() for line in text.split("\n\n")[0].splitlines()[2:]]
    return {row[0]: dict(zip(columns, map(float, row[1:]))) for row in rows}


def smooth(values, window=15):
    """Mean over `window` steps; the result starts at step window - 1."""
    return np.convolve(values, np.ones(window) / window, "valid")


def plot_runs(axis, runs, field, modes=None, window=15):
    """One line a mode, the mean over seeds; the band spans the seeds."""
    for mode in modes or runs:
        curves = [smooth(steps[field], window) for steps in runs[mode].values()]
        curves = np.array([c[:min(map(len, curves))] for c in curves])
        x = np.arange(window - 1, window - 1 + curves.shape[1])
        axis.plot(x, curves.mean(0), color=COLORS[mode], label=mode, lw=1.4)
        axis.fill_between(x, curves.min(0), curves.max(0), color=COLORS[mode], alpha=0.15, lw=0)
    axis.set_xlabel("step")
