import numpy as np

import quads


def to_half(codes):
    codes = codes.astype(np.uint16)
    return ((codes >> 3) << 15 | (codes & 7) << 9).view(np.float16)


def gemm_half(x, w):
    """Both factors leave with the block, as one of 2^28: exact, and before the sum could round anything."""
    M, N = len(x.codes), len(w.codes)
    xh = to_half(quads.unpack_codes(x.codes)).reshape(M, -1, 16).astype(np.float32)
    wh = to_half(quads.unpack_codes(w.codes)).reshape(N, -1, 16).astype(np.float32)
    sx, sw = quads.e4m3_decode(x.scales), quads.e4m3_decode(w.scales)
    acc = np.zeros((M, N), np.float32)
    for b in range(xh.shape[1]):
        acc += (xh[:, b] @ wh[:, b].T) * np.float32(2 ** 28) * (sx[:, None, b] * sw[None, :, b])
    return acc * (x.outer * w.outer)[:, None]


def bytes_moved(M, N, K):
    blocks = -(-K // 16)
    return (M + N) * blocks * 9 + 4 * M + 4 + 4 * M * N
