import numpy as np


def running_values(prompt):
    value, values = int(prompt[0]), ""
    for operator, digit in zip(prompt[1:-1:2], prompt[2:-1:2]):
        value = {"+": value + int(digit), "-": value - int(digit), "*": value * int(digit)}[operator] % 10
        values += str(value)
    return values


def reward(line):
    prompt, response = line.split("=")
    return float(response[6] == running_values(prompt + "=")[6])


def zero_spread(rewards, group):
    groups = rewards.reshape(-1, group)
    return float(np.mean(groups.min(1) == groups.max(1)))
