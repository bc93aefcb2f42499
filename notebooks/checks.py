"""check("02.1", function): is your function exact, and if not, where does it differ first and by how much?"""
import copy

import numpy as np

import exercises


def ordered(values):
    """Floats as integers in the same order, so that neighbours differ by 1: the difference counts ULP."""
    kind = {4: np.uint32, 8: np.uint64}[values.dtype.itemsize]
    bits = values.view(kind).astype(object)
    sign = 1 << (8 * values.dtype.itemsize - 1)
    return np.where(bits >= sign, sign - bits, bits)


def differing(mine, theirs):
    """Mask of the elements whose bits differ; integers and bools are compared by value."""
    if theirs.dtype.kind != "f":
        return mine != theirs
    kind = {2: np.uint16, 4: np.uint32, 8: np.uint64}[theirs.dtype.itemsize]
    return np.ascontiguousarray(mine).view(kind) != np.ascontiguousarray(theirs).view(kind)


def same_bits(mine, theirs):
    """'0 of 12 values differ'"""
    mine, theirs = np.atleast_1d(mine), np.atleast_1d(theirs)
    return f"{differing(mine, theirs).sum()} of {theirs.size} values differ"


def _show(value):
    if isinstance(value, np.floating):
        digits = 2 * value.dtype.itemsize
        return f"{value!s} (0x{int(value.view(f'u{value.dtype.itemsize}')):0{digits}X})"
    return f"{value} (0x{int(value):02X})" if isinstance(value, np.integer) and value >= 0 else str(value)


def _difference(mine, theirs):
    """A sentence on the first difference of two results, or None."""
    if isinstance(theirs, tuple):
        if not isinstance(mine, tuple) or len(mine) != len(theirs):
            return f"expected a tuple of {len(theirs)} arrays"
        for i, pair in enumerate(zip(mine, theirs)):
            sentence = _difference(*pair)
            if sentence:
                return f"result {i}: {sentence}"
        return None
    if theirs is None or mine is None:
        return None if mine is theirs else f"yours {mine}, reference {theirs}"
    mine, theirs = np.asarray(mine), np.asarray(theirs)
    if mine.shape != theirs.shape:
        return f"your shape is {mine.shape}, expected {theirs.shape}"
    if (mine.dtype.kind == "f" or theirs.dtype.kind == "f") and mine.dtype != theirs.dtype:
        return f"your type is {mine.dtype}, expected {theirs.dtype}: every step must round to it"
    wrong = differing(np.atleast_1d(mine), np.atleast_1d(theirs))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    a, b = np.atleast_1d(mine)[at], np.atleast_1d(theirs)[at]
    text = f"{wrong.sum()} of {wrong.size} values differ, first at {list(at)}: yours {_show(a)}, reference {_show(b)}"
    if theirs.dtype.kind == "f" and theirs.dtype.itemsize > 2:
        text += f", {abs(ordered(np.atleast_1d(mine))[at] - ordered(np.atleast_1d(theirs))[at])} ULP apart"
    return text


def _brief(argument):
    if isinstance(argument, np.ndarray):
        return f"{argument.dtype} {argument.shape} " + np.array2string(argument.ravel(), threshold=24)
    return f"packed {argument.codes.shape[0]} x {argument.K}" if hasattr(argument, "codes") else repr(argument)


def _size(result):
    return sum(map(_size, result)) if isinstance(result, tuple) else np.size(result)


def check(exercise, function):
    """Calls the function on the cases of the exercise and prints how it compares with the reference."""
    reference, cases = exercises.EXERCISES[exercise]
    values = 0
    for number, case in enumerate(cases()):
        expected = reference(*case)
        try:
            mine = function(*copy.deepcopy(case))
        except NotImplementedError:
            print(f"{exercise}  not implemented yet")
            return
        except Exception as error:  # a student's mistake of any kind is a result, not the end of the notebook
            print(f"{exercise}  exact: no   case {number}: your function raised {type(error).__name__}: {error}")
            return
        sentence = _difference(mine, expected)
        if sentence:
            print(f"{exercise}  exact: no   case {number}: {sentence}")
            for i, argument in enumerate(case):
                print(f"      argument {i}: {_brief(argument)}")
            return
        values += _size(expected)
    print(f"{exercise}  exact: yes   {values} values in {number + 1} case{'s' if number else ''}")
