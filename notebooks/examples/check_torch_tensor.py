#!/usr/bin/env python3
"""Checks a W4A4 GEMM on PyTorch tensors against the C++ reference, bit for bit.

    make library
    python3 notebooks/examples/check_torch_tensor.py

Nothing here imports torch: a tensor is anything with data_ptr(), shape, is_contiguous() and element_size(), and a numpy
array does too. With torch installed, the check runs on torch tensors; move those of a GPU with .cpu() first.
"""
import ctypes
import importlib.util
import os
import sys
from pathlib import Path

import numpy as np

BUILD = Path(os.environ.get("QUADS_BUILD", Path(__file__).resolve().parents[2] / "build"))
library = ctypes.CDLL(str(BUILD / "libquads_reference.so"))
library.quads_error_message.restype = ctypes.c_char_p


def pointer(array, element_size):
    """Address of the first element of a contiguous CPU tensor or numpy array."""
    if hasattr(array, "data_ptr"):
        if getattr(array, "is_cuda", False):
            raise ValueError("The reference reads host memory; pass tensor.cpu().")
        contiguous, size, address = array.is_contiguous(), array.element_size(), array.data_ptr()
    else:
        contiguous, size, address = array.flags.c_contiguous, array.itemsize, array.ctypes.data
    if not contiguous or size != element_size:
        raise ValueError(f"expected a contiguous array of {element_size}-byte elements, found {size} bytes")
    return ctypes.c_void_p(address)


def call(name, *arguments):
    if getattr(library, name)(*arguments):
        raise ValueError(library.quads_error_message().decode())


def quantize(x, codes, scales, outer, outer_per_row):
    """NVFP4 of x (rows, K) into codes (rows, 8 B), scales (rows, B) and outer (rows) or (1)."""
    rows, columns = x.shape
    call("quads_quantize_nvfp4", pointer(x, 4), None, 1, rows, columns, 0 if outer_per_row else 1,
         pointer(codes, 1), pointer(scales, 1), pointer(outer, 4))


def reference_gemm(x, w, y):
    """y (M, N) = x (M, K) times w (N, K), given as (codes, scales, outer, K)."""
    (M, N), K = y.shape, x[3]
    call("quads_gemm_w4a4", pointer(x[0], 1), pointer(x[1], 1), pointer(x[2], 4), 0,
         pointer(w[0], 1), pointer(w[1], 1), pointer(w[2], 4), None, 1, M, N, K, pointer(y, 4))


def numpy_of(array):
    return array.numpy() if hasattr(array, "numpy") else array


def my_gemm(x, w):
    """The kernel under test; replace it by yours. Blocks in ascending order, one FP32 rounding each."""
    grid = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    e4m3 = np.array([i / 512 if i < 8 else np.ldexp(8 + i % 8, i // 8 - 10) for i in range(127)], np.float32)

    def values(codes):
        nibbles = np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(codes), -1, 16)
        return grid[nibbles & 7] * np.where(nibbles & 8, np.float32(-1), np.float32(1))

    (x_codes, x_scales, x_outer), (w_codes, w_scales, w_outer) = (tuple(map(numpy_of, t[:3])) for t in (x, w))
    x_values, w_values = values(x_codes), values(w_codes)
    acc = np.zeros((len(x_values), len(w_values)), np.float32)
    for b in range(x_values.shape[1]):
        dot = x_values[:, b] @ w_values[:, b].T
        acc += dot * (e4m3[x_scales[:, b]][:, None] * e4m3[w_scales[:, b]])
    return acc * (x_outer[:, None] * w_outer)


def main():
    rng = np.random.default_rng(0)
    if importlib.util.find_spec("torch"):
        import torch
        tensor = torch.from_numpy
    else:
        tensor = lambda array: array
    print("torch tensors" if importlib.util.find_spec("torch") else "numpy arrays (torch is not installed)")
    exact = True
    for M, N, K in [(1, 1, 1), (17, 33, 15), (33, 31, 129), (5, 7, 512)]:
        packed = []
        for rows, per_row in ((M, True), (N, False)):
            blocks = -(-K // 16)
            shapes = ((rows, 8 * blocks), np.uint8), ((rows, blocks), np.uint8), (rows if per_row else 1, np.float32)
            parts = [tensor(np.empty(shape, kind)) for shape, kind in shapes]
            values = (rng.standard_normal((rows, K)) * np.exp2(rng.integers(-6, 6, (1, K)))).astype(np.float32)
            quantize(tensor(values), *parts, outer_per_row=per_row)
            packed.append((*parts, K))
        expected = tensor(np.empty((M, N), np.float32))
        reference_gemm(*packed, expected)
        wrong = int((my_gemm(*packed).view(np.uint32) != numpy_of(expected).view(np.uint32)).sum())
        print(f"M={M} N={N} K={K}: {'exact' if wrong == 0 else f'{wrong} of {M * N} differ'}")
        exact = exact and wrong == 0
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
