import numpy as np

import quads

f32 = np.float32


def ascending_sum(values):
    total = f32(0)
    for value in values:
        total += value
    return total


def advantages_of(rewards, group):
    result = np.zeros_like(rewards)
    for first in range(0, len(rewards), group):
        r = rewards[first:first + group]
        if r.min() == r.max():
            continue
        mean = ascending_sum(r) / f32(group)
        std = np.sqrt(ascending_sum((r - mean) * (r - mean)) / f32(group - 1))
        result[first:first + group] = (r - mean) / (std + f32(1e-4))
    return result


def gradient_of(logp_trainer, logp_rollout, advantages, lengths):
    ratio = quads.exact_exp(np.clip(logp_trainer - logp_rollout, f32(-20), f32(20)))
    A = np.broadcast_to(advantages[:, None], ratio.shape)
    counted = np.arange(ratio.shape[1]) < lengths[:, None]
    clipped = np.where(A > 0, ratio > f32(1) + f32(0.2), ratio < f32(1) - f32(0.2))
    gradient = np.zeros_like(ratio)
    learns = counted & ~clipped & (A != 0)
    gradient[learns] = -(ratio * A)[learns] / f32(lengths.sum())
    return gradient


def to_logits(logp, weights, temperature):
    total = np.zeros(len(logp), f32)
    for v in range(logp.shape[1]):
        total += weights[:, v]
    return (weights - quads.exact_exp(logp) * total[:, None]) / f32(temperature)
