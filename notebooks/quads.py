"""The CPU references on numpy arrays, through the C interface reference/quads_reference.h.

Functions have the names and the order of arguments of the C++ headers; sizes come from the arrays. Inputs are converted
to the type that the reference takes, outputs are new arrays. A refused argument raises ValueError with its sentence.
"""
import ctypes
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / os.environ.get("QUADS_BUILD", "build")
BLOCK = 16


def built(name):
    path = BUILD / name
    if not path.exists():
        raise FileNotFoundError(f"{path.name} is missing. Run `make library quads` in the repository first.")
    return path


_library = ctypes.CDLL(str(built("libquads_reference.so")))
_library.quads_error_message.restype = ctypes.c_char_p


def _call(name, *arguments):
    """Arrays go as pointers, None as NULL, int and float as the C types, np.int64 as int64_t."""
    converted = []
    for a in arguments:
        if a is None or isinstance(a, np.ndarray):
            converted.append(None if a is None else a.ctypes.data_as(ctypes.c_void_p))
        elif isinstance(a, np.int64):
            converted.append(ctypes.c_int64(int(a)))
        else:
            converted.append(ctypes.c_float(a) if isinstance(a, float) else ctypes.c_int(a))
    if getattr(_library, "quads_" + name)(*converted) != 0:
        raise ValueError(_library.quads_error_message().decode())


def _f32(x):
    return np.ascontiguousarray(x, np.float32)


def _i32(x):
    return np.ascontiguousarray(x, np.int32)


# ---- codec.hpp and exact_math.hpp: any shape, one code per byte ----

def _elementwise(name, source, target):
    def function(x):
        x = np.asarray(x, source, order="C")
        y = np.empty(x.shape, target)
        _call(name, x, np.int64(x.size), y)
        return y[()]  # a number for a number
    function.__name__ = name
    return function


e2m1_encode = _elementwise("e2m1_encode", np.float32, np.uint8)
e2m1_decode = _elementwise("e2m1_decode", np.uint8, np.float32)
e4m3_encode = _elementwise("e4m3_encode", np.float32, np.uint8)
e4m3_decode = _elementwise("e4m3_decode", np.uint8, np.float32)
bf16_round = _elementwise("bf16_round", np.float32, np.float32)
exact_exp = _elementwise("exact_exp", np.float32, np.float32)
exact_log = _elementwise("exact_log", np.float32, np.float32)
exact_sigmoid = _elementwise("exact_sigmoid", np.float32, np.float32)


def pack_codes(codes):
    """(rows, columns) codes to (rows, ceil(columns / 2)) bytes, even column in the low nibble."""
    codes = np.ascontiguousarray(codes, np.uint8)
    packed = np.empty((codes.shape[0], (codes.shape[1] + 1) // 2), np.uint8)
    _call("pack_codes", codes, *codes.shape, packed)
    return packed


def unpack_codes(packed):
    packed = np.ascontiguousarray(packed, np.uint8)
    codes = np.empty((packed.shape[0], packed.shape[1] * 2), np.uint8)
    _call("unpack_codes", packed, *codes.shape, codes)
    return codes


# ---- nvfp4.hpp ----

@dataclass
class Packed:
    """An NVFP4 matrix of M rows and K columns; a value is (code * scale) * outer."""
    codes: np.ndarray    # (M, 8 B) uint8, two E2M1 codes a byte
    scales: np.ndarray   # (M, B) uint8, E4M3
    outer: np.ndarray    # (M) float32 for outer_scale "row", (E) for "group"
    K: int
    outer_scale: str
    offsets: np.ndarray  # (E + 1) int32 rows of the groups

    def layout(self):
        return self.offsets, len(self.offsets) - 1, len(self.codes), self.K


OUTER = {"row": 0, "group": 1}
SELECT = {"batch": 0, "token": 1, "random": 2}


def _offsets(offsets, M):
    return _i32([0, M] if offsets is None else offsets)


def quantize_nvfp4(x, outer_scale="row", offsets=None):
    x = _f32(x)
    M, K = x.shape
    blocks, offsets = -(-K // BLOCK), _offsets(offsets, M)
    outer = np.empty(M if outer_scale == "row" else len(offsets) - 1, np.float32)
    q = Packed(np.empty((M, 8 * blocks), np.uint8), np.empty((M, blocks), np.uint8), outer, K, outer_scale, offsets)
    _call("quantize_nvfp4", x, *q.layout(), OUTER[outer_scale], q.codes, q.scales, q.outer)
    return q


def dequantize_nvfp4(q, with_outer=True):
    x = np.empty((len(q.codes), q.K), np.float32)
    _call("dequantize_nvfp4", q.codes, q.scales, q.outer, *q.layout(), OUTER[q.outer_scale], int(with_outer), x)
    return x


def quantize_nvfp4_residual(x, main, ratio=0.5, selection="batch"):
    """The second pass of residual compensation; it shares the outer scales of `main`."""
    r = replace(main, codes=np.empty_like(main.codes), scales=np.empty_like(main.scales))
    _call("quantize_nvfp4_residual", _f32(x), main.codes, main.scales, main.outer, *main.layout(),
          OUTER[main.outer_scale], float(ratio), SELECT[selection], r.codes, r.scales)
    return r


def count_code_flips(a, b):
    a, b = _f32(a), _f32(b)
    flips = np.empty(len(a), np.int32)
    _call("count_code_flips", a, b, *a.shape, flips)
    return flips


# ---- GEMMs: y (M, N) = x (M, K) times w (E, N, K) or (N, K) ----

def gemm_w4a4(x, w, residual=None):
    """x with its groups of rows; w packed with outer_scale "group" and E groups of N rows each."""
    E = len(w.outer)
    N = len(w.codes) // E
    y = np.empty((len(x.codes), N), np.float32)
    second = () if residual is None else (residual.codes, residual.scales)
    _call("gemm_w4a4" + ("_residual" if second else ""), x.codes, x.scales, x.outer, OUTER[x.outer_scale], *second,
          w.codes, w.scales, w.outer, x.offsets, E, len(x.codes), N, x.K, y)
    return y


def _stacked(w):
    w = _f32(w)
    return w if w.ndim == 3 else w[None]


def gemm_bf16(x, w, w_outer=None, offsets=None):
    x, w = _f32(x), _stacked(w)
    E, N, K = w.shape
    y = np.empty((len(x), N), np.float32)
    _call("gemm_bf16", x, w, None if w_outer is None else _f32(w_outer), _offsets(offsets, len(x)), E, len(x), N, K, y)
    return y


def gemm_bf16_backward_input(dy, w, w_outer=None, offsets=None):
    dy, w = _f32(dy), _stacked(w)
    E, N, K = w.shape
    dx = np.empty((len(dy), K), np.float32)
    _call("gemm_bf16_backward_input", dy, w, None if w_outer is None else _f32(w_outer), _offsets(offsets, len(dy)),
          E, len(dy), N, K, dx)
    return dx


def gemm_bf16_backward_weight(dy, x, offsets=None):
    dy, x = _f32(dy), _f32(x)
    offsets = _offsets(offsets, len(dy))
    dw = np.empty((len(offsets) - 1, dy.shape[1], x.shape[1]), np.float32)
    _call("gemm_bf16_backward_weight", dy, x, offsets, len(offsets) - 1, len(dy), *dw.shape[1:], dw)
    return dw


# ---- rmsnorm.hpp, swiglu.hpp, router.hpp, attention.hpp ----

def rmsnorm(x, g):
    x = _f32(x)
    h, rstd = np.empty_like(x), np.empty(len(x), np.float32)
    _call("rmsnorm", x, _f32(g), *x.shape, h, rstd)
    return h


def swiglu(gate_up):
    gate_up = _f32(gate_up)
    m = np.empty((len(gate_up), gate_up.shape[1] // 2), np.float32)
    _call("swiglu", gate_up, *m.shape, m)
    return m


def swiglu_backward(dm, gate_up):
    dm, gate_up = _f32(dm), _f32(gate_up)
    dgate_up = np.empty_like(gate_up)
    _call("swiglu_backward", dm, gate_up, *dm.shape, dgate_up)
    return dgate_up


def router_topk(logits, S, replay=None):
    """probs (T, E), experts (T, S), gates (T, S)"""
    logits = _f32(logits)
    T, E = logits.shape
    probs, experts, gates = np.empty((T, E), np.float32), np.empty((T, S), np.int32), np.empty((T, S), np.float32)
    _call("router_topk", logits, None if replay is None else _i32(replay), T, E, S, probs, experts, gates)
    return probs, experts, gates


def route_rows(experts, E):
    """offsets (E + 1), source (T S), place (T, S)"""
    experts = _i32(experts)
    offsets, source, place = np.empty(E + 1, np.int32), np.empty(experts.size, np.int32), np.empty_like(experts)
    _call("route_rows", experts, len(experts), E, experts.shape[1], offsets, source, place)
    return offsets, source, place


def combine_rows(x, place, gates=None):
    x, place = _f32(x), _i32(place)
    y = np.empty((len(place), x.shape[1]), np.float32)
    _call("combine_rows", x, place, None if gates is None else _f32(gates), len(place), x.shape[1], place.shape[1], y)
    return y


def causal_attention(q, k, v, sequences, heads):
    """Rows are `sequences` sequences of equal length, one after the other; values BF16."""
    q, k, v = _f32(q), _f32(k), _f32(v)
    o = np.empty_like(q)
    _call("attention", q, k, v, sequences, len(q) // sequences, 1, 0, q.shape[1], heads, o)
    return o


# ---- log_softmax.hpp and grpo.hpp ----

def log_softmax(logits, temperature=1.0):
    """logp (T, V), entropy (T)"""
    logits = _f32(logits)
    logp, entropy = np.empty_like(logits), np.empty(len(logits), np.float32)
    _call("log_softmax", logits, float(temperature), *logits.shape, logp, entropy)
    return logp, entropy


def log_softmax_backward(logp, weights, temperature=1.0):
    logp = _f32(logp)
    dlogits = np.empty_like(logp)
    _call("log_softmax_backward", logp, _f32(weights), float(temperature), *logp.shape, dlogits)
    return dlogits


def group_advantages(rewards, group, epsilon=1e-4):
    rewards = _f32(rewards)
    advantages = np.empty_like(rewards)
    _call("group_advantages", rewards, rewards.size, group, float(epsilon), advantages)
    return advantages


def policy_gradient(logp_trainer, logp_rollout, advantages, lengths, clip_low=0.2, clip_high=0.2):
    """d loss / d logp_trainer, (sequences, n); the rollout's log-probabilities are the denominator."""
    logp_trainer, lengths = _f32(logp_trainer), _i32(lengths)
    gradient = np.empty_like(logp_trainer)
    _call("policy_gradient", logp_trainer, _f32(logp_rollout), _f32(advantages), lengths, *logp_trainer.shape,
          int(lengths.sum()), 0, float(clip_low), float(clip_high), 2.0, gradient)
    return gradient
