#!/usr/bin/env python3
"""Checks a quantiser written in numpy against the C++ reference, bit for bit.

    make library
    python3 notebooks/examples/check_numpy_kernel.py

The kernel under test is quantize() below: replace it by yours. Exit status 0 means exact.
"""
import ctypes
import os
import sys
from pathlib import Path

import numpy as np

BUILD = Path(os.environ.get("QUADS_BUILD", Path(__file__).resolve().parents[2] / "build"))
library = ctypes.CDLL(str(BUILD / "libquads_reference.so"))
library.quads_error_message.restype = ctypes.c_char_p

MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E4M3 = np.array([i / 512 if i < 8 else np.ldexp(8 + i % 8, i // 8 - 10) for i in range(127)], np.float32)


def nearest_even(x, grid):
    """Index of the nearest value of an ascending grid; of two equally near ones, the even index."""
    upper = np.clip(np.searchsorted(grid, x), 1, len(grid) - 1)
    below, above = x - grid[upper - 1].astype(np.float64), grid[upper].astype(np.float64) - x
    return np.where((below < above) | ((below == above) & (upper % 2 == 1)), upper - 1, upper)


def quantize(x):
    """NVFP4 in numpy: codes (M, 8 B) uint8, scales (M, B) uint8, outer (M) float32. See reference/nvfp4.hpp."""
    rows, columns = x.shape
    blocks = -(-columns // 16)
    padded = np.zeros((rows, blocks * 16), np.float32)
    padded[:, :columns] = x
    one, six = np.float32(1), np.float32(6)
    amax = np.abs(x).max(axis=1)
    with np.errstate(all="ignore"):
        encode = np.where(amax == 0, one, np.minimum(np.float32(2688) / amax, np.finfo(np.float32).max))
        outer = one / encode
        block_amax = np.abs(padded).reshape(rows, blocks, 16).max(axis=2)
        scales = nearest_even(block_amax * (encode * (one / six))[:, None], E4M3).astype(np.uint8)
        inverse = np.minimum(one / (E4M3[scales] * outer[:, None]), np.finfo(np.float32).max)
        scaled = padded * np.repeat(inverse, 16, axis=1)
    codes = nearest_even(np.minimum(np.abs(scaled), six), MAGNITUDES) | np.signbit(scaled) << 3
    codes = np.where(np.repeat(scales, 16, axis=1) == 0, 0, codes)
    return (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8), scales, outer


def reference(x):
    """The same by the library."""
    rows, columns = x.shape
    blocks = -(-columns // 16)
    codes, scales = np.empty((rows, 8 * blocks), np.uint8), np.empty((rows, blocks), np.uint8)
    outer = np.empty(rows, np.float32)
    pointer = lambda array: array.ctypes.data_as(ctypes.c_void_p)
    error = library.quads_quantize_nvfp4(pointer(x), None, 1, rows, columns, 0,
                                         pointer(codes), pointer(scales), pointer(outer))
    if error:
        raise ValueError(library.quads_error_message().decode())
    return codes, scales, outer


def difference(name, found, expected):
    """Compares bits; True where they agree."""
    wrong = np.argwhere(found.view(np.uint8) != expected.view(np.uint8)) if found.dtype == expected.dtype else [[0]]
    if len(wrong) == 0 and found.shape == expected.shape:
        return True
    print(f"  {name}: {len(wrong)} of {expected.nbytes} bytes differ, the first at {tuple(int(i) for i in wrong[0])}")
    return False


def main():
    generator = np.random.default_rng(0)
    exact = True
    for rows, columns in [(1, 1), (15, 16), (17, 33), (128, 129)]:
        random = generator.standard_normal((rows, columns)).astype(np.float32)
        # Blocks of very different size: some scales become subnormal, some 0.
        spread = random * np.exp2(-2.0 * (np.arange(columns) // 16)).astype(np.float32)
        for name, x in [("random", random), ("spread", spread), ("zeros", random * 0)]:
            print(f"{name} {rows} x {columns}")
            pairs = zip(("codes", "scales", "outer"), quantize(x), reference(x))
            exact = all([difference(*pair) for pair in pairs]) and exact
    print("exact" if exact else "NOT exact")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
