import math

import numpy as np

import quads


def kept_channels(ratio, K):
    return math.ceil(np.float32(ratio) * np.float32(K))


def select_token(r, count):
    keep = np.zeros(r.shape, bool)
    for row, mask in zip(np.abs(r), keep):
        by_size = sorted(range(len(row)), key=lambda k: (-row[k], k))
        mask[by_size[:count]] = True
    return keep


def interleave(a, b, width):
    """Blocks of `width` bytes of a and b in turn."""
    pair = np.stack([a.reshape(len(a), -1, width), b.reshape(len(b), -1, width)], axis=2)
    return np.ascontiguousarray(pair.reshape(len(a), -1))


def gemm_residual(x, residual, w):
    K = 2 * 16 * x.scales.shape[1]
    both = quads.Packed(interleave(x.codes, residual.codes, 8), interleave(x.scales, residual.scales, 1), x.outer, K,
                        x.outer_scale, x.offsets)
    twice = quads.Packed(interleave(w.codes, w.codes, 8), interleave(w.scales, w.scales, 1), w.outer, K, w.outer_scale,
                         w.offsets)
    return quads.gemm_w4a4(both, twice)
