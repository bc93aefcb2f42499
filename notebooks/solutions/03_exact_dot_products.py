import numpy as np

import quads

DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])


def block_dots4(x, w):
    return (DOUBLED[x] * DOUBLED[w]).sum(1)


def gemm(x, w):
    M, N = len(x.codes), len(w.codes)
    x_codes = quads.unpack_codes(x.codes).reshape(M, -1, 16)
    w_codes = quads.unpack_codes(w.codes).reshape(N, -1, 16)
    x_scales, w_scales = quads.e4m3_decode(x.scales), quads.e4m3_decode(w.scales)
    acc = np.zeros((M, N), np.float32)
    for b in range(x_codes.shape[1]):
        dots4 = DOUBLED[x_codes[:, b]] @ DOUBLED[w_codes[:, b]].T
        acc += dots4.astype(np.float32) * np.float32(0.25) * (x_scales[:, None, b] * w_scales[None, :, b])
    return acc * (x.outer * w.outer)[:, None]


def scale_units(byte):
    exponent, mantissa = byte >> 3, byte & 7
    return mantissa if exponent == 0 else (8 + mantissa) << (exponent - 1)


def exact_units(x, w):
    total = 0
    dots4 = block_dots4(quads.unpack_codes(x.codes).reshape(-1, 16), quads.unpack_codes(w.codes).reshape(-1, 16))
    for dot4, sx, sw in zip(dots4, x.scales[0], w.scales[0]):
        total += int(dot4) * scale_units(int(sx)) * scale_units(int(sw))
    return total
