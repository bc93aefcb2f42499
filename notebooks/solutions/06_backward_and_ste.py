import numpy as np

import quads


def backward_input(dy, w):
    dx = np.zeros((len(dy), w.shape[1]), np.float32)
    for n in range(len(w)):
        dx += dy[:, n, None] * w[n]
    return dx


def backward_weight(dy, x):
    dw = np.zeros((dy.shape[1], x.shape[1]), np.float32)
    for m in range(len(dy)):
        dw += dy[m, :, None] * x[m]
    return dw


def swiglu_backward(dm, gate_up):
    z, up = np.split(gate_up, 2, axis=1)
    y = quads.exact_sigmoid(z)
    one = np.float32(1)
    return np.concatenate([(dm * up) * (y * (one + z * (one - y))), dm * (z * y)], axis=1)
