import numpy as np

import quads


def top_k(logits, S):
    return np.argsort(-logits, axis=1, kind="stable")[:, :S]


def gates_of(logits, experts):
    exponentials = quads.exact_exp(logits - logits.max(1, keepdims=True))
    total = np.zeros(len(logits), np.float32)
    for e in range(logits.shape[1]):
        total += exponentials[:, e]
    chosen = np.take_along_axis(exponentials / total[:, None], experts.astype(int), 1)
    total = np.zeros(len(logits), np.float32)
    for s in range(experts.shape[1]):
        total += chosen[:, s]
    return chosen / total[:, None]


def route(experts, E):
    T, S = experts.shape
    order = np.argsort(experts.ravel(), kind="stable")
    place = np.empty(T * S, int)
    place[order] = np.arange(T * S)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(experts.ravel(), minlength=E))])
    return offsets, order // S, place.reshape(T, S)
