import numpy as np

import quads


def decompose(trainer, drifted, weights, rollout):
    return np.abs(trainer - drifted), np.abs(drifted - weights), np.abs(weights - rollout)


def count_flips(a, b):
    K = a.shape[1]
    codes_a, codes_b = (quads.unpack_codes(quads.quantize_nvfp4(m).codes)[:, :K] for m in (a, b))
    return (codes_a != codes_b).sum(1)


def flip_margin(scaled):
    thresholds = np.float32([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])
    return np.abs(np.abs(scaled)[:, None] - thresholds).min(1)
