import math

import numpy as np

import quads


def trace_gap(a, b, scale):
    first, second = quads.e2m1_decode(quads.e2m1_encode(np.float32([a, b]) / np.float32(scale)))
    return float(abs(first - second) * np.float32(scale))


def codes_changed(row, mate):
    alone = quads.unpack_codes(quads.quantize_nvfp4(row[None], "group").codes)[0]
    together = quads.unpack_codes(quads.quantize_nvfp4(np.stack([row, mate]), "group").codes)[0]
    return int(np.sum(alone != together))


def interval_of(values):
    n = len(values)
    mean = math.fsum(values) / n
    s = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    half = {3: 4.303, 5: 2.776}[n] * s / math.sqrt(n)
    return mean - half, mean + half
