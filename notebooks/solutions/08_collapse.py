import math


def effective_sample_size(gaps):
    ratios = [math.exp(g) for g in gaps]
    s1, s2 = math.fsum(ratios), math.fsum(r * r for r in ratios)
    return s1 * s1 / (len(gaps) * s2)


def kl_k3(gaps):
    return math.fsum(math.exp(g) - 1.0 - g for g in gaps) / len(gaps)


def stays_below(rewards):
    means = [math.fsum(rewards[i:i + 15]) / 15 for i in range(len(rewards) - 14)]
    answer = None
    for step in range(len(means) - 1, -1, -1):
        if means[step] >= means[0]:
            break
        answer = step
    return answer
