"""Every exercise: its reference and its cases. References are the C++ ones where the repository has such an operation.

EXERCISES["02.1"] = (reference, cases): cases() yields tuples of arguments, reference(*arguments) the expected result.
Cases hold what goes wrong in practice: ties, zeros of both signs, subnormals, widths that are no multiple of 16.
"""
import math

import numpy as np

import quads
from quads import ROOT

f32 = np.float32


def random(seed, *shape, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(f32)


def packed(seed, M, K, outer_scale="row", **options):
    return quads.quantize_nvfp4(random(seed, M, K), outer_scale, **options)


# ---- 00 ----

def heldout_lines():
    lines = (ROOT / "data" / "heldout.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def running_values(prompt):
    return {line.split("=")[0] + "=": line.split("=")[1] for line in heldout_lines()}[prompt]


def reward(line):
    prompt, response = line.split("=")
    return float(response[6:7] == running_values(prompt + "=")[6])


def zero_spread(rewards, group):
    return float((quads.group_advantages(rewards, group).reshape(-1, group) == 0).all(1).mean())


def chains_with_mistakes():
    for i, line in enumerate(heldout_lines()[:60]):
        last = str((int(line[-1]) + i % 3) % 10)
        first = line.index("=") + 1
        yield (line[:-1] + last if i % 2 else line[:first] + "7" + line[first + 1:],)


# ---- 01 ----

def around(values):
    """Every value, its two FP32 neighbours, and the negatives of all three."""
    values = np.asarray(values, f32)
    near = np.concatenate([values, np.nextafter(values, f32(np.inf)), np.nextafter(values, f32(-np.inf))])
    return np.concatenate([near, -near]).astype(f32)


TIES = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]


def encode_cases():
    yield (around([*TIES, 0, 0.5, 1, 1.5, 2, 3, 4, 6, 7, 448, 3e38]),)
    yield (random(1, 1000, scale=3),)


# ---- 02 ----

def matrices():
    yield (random(2, 4, 48),)
    yield (random(3, 3, 20, scale=1e-3),)      # 20 columns: the second block holds 4
    x = random(4, 4, 64)
    x[1] = 0                                   # a zero row
    x[2, 16:32] = 0                            # a zero block
    x[3, :16] *= 1e-7                          # a block whose scale rounds to 0
    yield (x,)
    yield (random(5, 2, 32, scale=1e30),)


# ---- 03 ----

def block_pairs():
    for seed in range(5):
        generator = np.random.default_rng(seed)
        yield tuple(generator.integers(0, 16, (8, 16), dtype=np.uint8) for _ in range(2))
    yield np.full((1, 16), 7, np.uint8), np.full((1, 16), 15, np.uint8)


def unit_packed(codes):
    """Codes as a packed matrix with every scale 1."""
    one = quads.e4m3_encode(f32([1]))[0]
    M, K = codes.shape
    return quads.Packed(quads.pack_codes(codes), np.full((M, K // 16), one, np.uint8), np.ones(1, f32), K, "group",
                        np.array([0, M], np.int32))


def block_dots(x, w):
    return np.array([4 * quads.gemm_w4a4(unit_packed(a[None]), unit_packed(b[None]))[0, 0] for a, b in zip(x, w)], int)


def row_pairs():
    for seed, K in enumerate([16, 48, 100, 1024]):
        yield packed(10 + seed, 3, K), packed(20 + seed, 5, K, "group")


def small_pairs():
    """Two blocks with small scales: the sum fits in FP32's 24 bits, so that the reference's result is exact."""
    for seed in range(20):
        pair = [packed(seed, 1, 32, "group"), packed(100 + seed, 1, 32, "group")]
        generator = np.random.default_rng(seed)
        for q in pair:
            q.scales[:] = generator.integers(0, 9, q.scales.shape)
            q.outer[:] = 1
        yield tuple(pair)


# ---- 04 ----

def bytes_moved(M, N, K):
    x, w = packed(0, M, K), packed(1, N, K, "group")
    return sum(a.nbytes for a in (x.codes, x.scales, x.outer, w.codes, w.scales, w.outer)) + 4 * M * N


# ---- 05 ----

def logit_cases():
    yield random(30, 64, 8), 2
    yield np.round(random(31, 64, 8) * 2) / 2, 3      # many ties
    yield np.zeros((2, 4), f32), 4


def gate_cases():
    for logits, S in logit_cases():
        yield logits, quads.router_topk(logits, S)[1]


def expert_cases():
    for logits, S in logit_cases():
        yield quads.router_topk(logits, S)[1], logits.shape[1]


# ---- 06 ----

def linear_cases(make):
    for seed, (M, N, K) in enumerate([(1, 1, 1), (5, 7, 16), (33, 20, 48)]):
        sizes = {"dy": (M, N), "w": (N, K), "x": (M, K)}
        yield tuple(quads.bf16_round(random(40 + 3 * seed + i, *sizes[name])) for i, name in enumerate(make))


# ---- 07 ----

def reward_cases():
    yield f32([1, 0, 0, 1]), 4
    yield f32([1, 1, 1, 1, 0, 0, 0, 0]), 4
    yield f32([0.1] * 3 + [0.1, 0.1, 0.3]), 3         # a std of equal rewards need not round to 0
    yield (random(50, 64) > 0).astype(f32), 8


def gradient_cases():
    for seed in range(4):
        rollout = -np.abs(random(60 + seed, 6, 7))
        trainer = (rollout + random(70 + seed, 6, 7, scale=0.3)).astype(f32)
        advantages = random(80 + seed, 6)
        advantages[2] = 0
        yield trainer, rollout, advantages, np.array([7, 7, 7, 3, 0, 7], np.int32)


def log_softmax_cases():
    for seed, temperature in enumerate([1.0, 0.7]):
        logp = quads.log_softmax(random(90 + seed, 9, 16, scale=2), temperature)[0]
        weights = np.zeros((9, 16), f32)
        weights[np.arange(9), np.arange(9)] = random(95 + seed, 9)
        yield logp, weights, temperature


# ---- 08: log-ratios as doubles, sums by math.fsum, which rounds once ----

def gap_cases():
    for seed, scale in enumerate([0.0, 0.05, 0.5]):
        yield ([float(g) for g in random(110 + seed, 500, scale=scale)],)


def effective_sample_size(gaps):
    ratios = [math.exp(g) for g in gaps]
    first, second = math.fsum(ratios), math.fsum(r * r for r in ratios)
    return first * first / (len(gaps) * second)


def kl_k3(gaps):
    return math.fsum(math.exp(g) - 1.0 - g for g in gaps) / len(gaps)


def stays_below(rewards, window=15):
    means = [math.fsum(rewards[i:i + window]) / window for i in range(len(rewards) - window + 1)]
    below = len(means)
    while below > 0 and means[below - 1] < means[0]:
        below -= 1
    return below if below < len(means) else None


def reward_curves():
    steps = np.arange(120)
    for curve in (0.6 + steps / 400, 0.6 - steps / 400, 0.6 + 0.2 * np.sin(steps / 12), np.full(120, 0.5)):
        yield ([float(r) for r in curve.astype(f32)],)


# ---- 09 ----

def kept_channels(ratio, K):
    return math.ceil(f32(ratio) * f32(K))


def select_token(r, count):
    order = np.argsort(-np.abs(r), axis=1, kind="stable")[:, :count]
    keep = np.zeros(r.shape, bool)
    np.put_along_axis(keep, order, True, axis=1)
    return keep


def residual_cases():
    for seed, (M, N, K) in enumerate([(2, 3, 16), (4, 5, 48), (3, 2, 200)]):
        x = random(120 + seed, M, K)
        main = quads.quantize_nvfp4(x)
        yield main, quads.quantize_nvfp4_residual(x, main, 0.5), packed(130 + seed, N, K, "group")


# ---- 10 ----

def decompose(trainer, drifted, weights, rollout):
    return tuple(np.abs(a - b) for a, b in ((trainer, drifted), (drifted, weights), (weights, rollout)))


def flip_margin(scaled):
    distance = np.abs(np.abs(scaled)[..., None] - f32(TIES))
    return distance.min(-1)


# ---- 11 ----

def trace_gap(a, b, scale):
    coded = quads.e2m1_decode(quads.e2m1_encode(f32([a, b]) / f32(scale)))
    return float(abs(coded[0] - coded[1]) * f32(scale))


def codes_changed(row, mate):
    alone = quads.quantize_nvfp4(row[None], "group")
    together = quads.quantize_nvfp4(np.stack([row, mate]), "group")
    return int((quads.unpack_codes(alone.codes)[0] != quads.unpack_codes(together.codes)[0]).sum())


def interval(values):
    n = len(values)
    mean = math.fsum(values) / n
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    half = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571}[n] * deviation / math.sqrt(n)
    return mean - half, mean + half


EXERCISES = {
    "00.1": (running_values, lambda: ((line.split("=")[0] + "=",) for line in heldout_lines()[:100])),
    "00.2": (reward, chains_with_mistakes),
    "00.3": (zero_spread, reward_cases),
    "01.1": (quads.e2m1_decode, lambda: [(np.arange(16, dtype=np.uint8),)]),
    "01.2": (quads.e2m1_encode, encode_cases),
    "01.3": (quads.e4m3_decode, lambda: [(np.arange(127, dtype=np.uint8),)]),
    "02.1": (lambda x: quads.quantize_nvfp4(x).outer, matrices),
    "02.2": (lambda x: quads.quantize_nvfp4(x).scales, matrices),
    "02.3": (lambda x: quads.quantize_nvfp4(x).codes, matrices),
    "03.1": (block_dots, block_pairs),
    "03.2": (quads.gemm_w4a4, row_pairs),
    "03.3": (lambda x, w: int(float(quads.gemm_w4a4(x, w)[0, 0]) * 2 ** 20), small_pairs),
    "04.1": (lambda codes: (quads.e2m1_decode(codes) * f32(2 ** -14)).astype(np.float16),
             lambda: [(np.arange(16, dtype=np.uint8),)]),
    "04.2": (quads.gemm_w4a4, row_pairs),
    "04.3": (bytes_moved, lambda: [(1, 1, 16), (64, 128, 100), (7, 33, 4096)]),
    "05.1": (lambda logits, S: quads.router_topk(logits, S)[1], logit_cases),
    "05.2": (lambda logits, experts: quads.router_topk(logits, experts.shape[1], experts)[2], gate_cases),
    "05.3": (quads.route_rows, expert_cases),
    "06.1": (quads.gemm_bf16_backward_input, lambda: linear_cases(("dy", "w"))),
    "06.2": (lambda dy, x: quads.gemm_bf16_backward_weight(dy, x)[0], lambda: linear_cases(("dy", "x"))),
    "06.3": (quads.swiglu_backward, lambda: [(random(45, 5, 8), random(46, 5, 16, scale=3))]),
    "07.1": (quads.group_advantages, reward_cases),
    "07.2": (lambda *batch: quads.policy_gradient(*batch) + f32(0), gradient_cases),     # -0 becomes 0
    "07.3": (quads.log_softmax_backward, log_softmax_cases),
    "08.1": (effective_sample_size, gap_cases),
    "08.2": (kl_k3, gap_cases),
    "08.3": (stays_below, reward_curves),
    "09.1": (kept_channels, lambda: [(0.5, 64), (0.1, 10), (0.3, 10), (0.125, 100), (0.0, 64), (1.0, 7)]),
    "09.2": (select_token, lambda: [(random(115, 5, 32), 16), (np.round(random(116, 5, 32)), 10)]),
    "09.3": (lambda x, r, w: quads.gemm_w4a4(x, w, r), residual_cases),
    "10.1": (decompose, lambda: [tuple(-np.abs(random(140 + i, 50)) for i in range(4))]),
    "10.2": (quads.count_code_flips, lambda: [(random(145, 6, 40), quads.bf16_round(random(145, 6, 40)))]),
    "10.3": (flip_margin, lambda: [(random(146, 100, scale=3),), (f32(TIES + [0, -2.5, 6, 0.5]),)]),
    "11.1": (trace_gap, lambda: [(60.24, 59.76, 24.0), (60.1, 59.9, 24.0), (61.0, 60.5, 24.0), (1.0, -1.0, 0.1)]),
    "11.2": (codes_changed, lambda: [(random(150, 32), random(151, 32, scale=s)) for s in (0.1, 1.0, 10.0, 1000.0)]),
    "11.3": (interval, lambda: [([0.25, 0.5, 0.75],), ([0.97, 0.98, 0.96],), ([0.4, 0.2, 0.3, 0.6, 0.5],)]),
}
