import numpy as np


def decode(codes):
    magnitudes = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    return np.concatenate([magnitudes, -magnitudes])[codes]


def encode(x):
    a = np.abs(x)
    magnitude = np.zeros(x.shape, np.uint8)
    for down in (0.25, 1.25, 2.5, 5.0):
        magnitude += a > down
    for up in (0.75, 1.75, 3.5):
        magnitude += a >= up
    return magnitude + 8 * np.signbit(x).astype(np.uint8)


def decode_scale(byte):
    exponent, mantissa = (byte >> 3).astype(int), (byte & 7).astype(np.float32)
    subnormal = mantissa * np.float32(2 ** -9)
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    return np.where(exponent == 0, subnormal, normal).astype(np.float32)
