"""Executes the notebooks: python run.py [--write] [NN ...]

Checks that each runs from top to bottom, that its printed results are the committed ones, that every exercise's stub
says "not implemented yet", that every solution of solutions/ is exact, and that check() sees the smallest error.
--write stores the new outputs instead of comparing them. The last line counts the checks.
"""
import contextlib
import io
import os
import re
import sys
import time
from pathlib import Path

os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")

import nbformat
import numpy as np
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

import checks
import exercises

HERE = Path(__file__).resolve().parent
CELL_SECONDS = 300  # a limit for slow or busy machines; no cell needs more than a few seconds on an idle one


def is_exercise(cell):
    return "exercise" in cell.metadata.get("tags", [])


def with_solutions(notebook, solutions):
    """The cells, and after each exercise one that defines the solutions and repeats the check."""
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        if cell.cell_type == "code" and is_exercise(cell):
            check_line = cell.source.splitlines()[-1]
            source = f"exec(open({str(solutions)!r}).read())\n{check_line}"
            cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": ["solution"]}))
    return cells


def printed(cell):
    """What a cell prints, and the number of its pictures."""
    text, pictures = "", 0
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            text += output.text
        elif output.output_type in ("execute_result", "display_data"):
            pictures += "image/png" in output.data
            if "image/png" not in output.data:
                text += output.data.get("text/plain", "") + "\n"
    return text.strip(), pictures


def clean(cell):
    """Outputs as they are committed: no messages of libraries, printed text in one piece."""
    outputs = []
    for output in cell.outputs:
        output.get("metadata", {}).clear()
        if output.output_type != "stream":
            outputs.append(output)
        elif output.name == "stdout" and outputs and outputs[-1].output_type == "stream":
            outputs[-1].text += output.text
        elif output.name == "stdout":
            outputs.append(output)
    cell.outputs = outputs
    cell.metadata.pop("execution", None)


def almost(result):
    """A result off by the least possible amount, in its last value."""
    if isinstance(result, tuple):
        return (*result[:-1], almost(result[-1]))
    if result is None or isinstance(result, (str, bool)):
        return f"not {result}"
    values = np.atleast_1d(np.array(result))
    last = values.ravel()[-1:]
    last[:] = np.nextafter(last, last.dtype.type(9)) if last.dtype.kind == "f" else last ^ 1
    return values if np.ndim(result) else values[0]


def wrong_answers_are_seen(report):
    for exercise, (reference, _) in exercises.EXERCISES.items():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            checks.check(exercise, lambda *case: almost(reference(*case)))
        report("exact: no" in printed.getvalue() and "raised" not in printed.getvalue(),
               f"check({exercise!r}) sees the smallest error", printed.getvalue())


def run(path, write, report):
    notebook = nbformat.read(path, 4)
    committed = [printed(cell) if cell.cell_type == "code" else None for cell in notebook.cells]
    count = len(notebook.cells)
    solutions = Path("solutions") / f"{path.stem}.py"
    executed = nbformat.from_dict({**notebook, "cells": with_solutions(notebook, solutions)})
    client = NotebookClient(executed, timeout=CELL_SECONDS, kernel_name="python3", record_timing=False,
                            extra_arguments=["--log-level=ERROR"], resources={"metadata": {"path": str(HERE)}})
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        report(False, f"{path.stem} runs", re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip())
        return
    report(True, f"{path.stem} runs")

    cells = [cell for cell in executed.cells if "solution" not in cell.metadata.get("tags", [])]
    assert len(cells) == count
    for number, (cell, before) in enumerate(zip(cells, committed)):
        if cell.cell_type != "code":
            continue
        if not write and printed(cell) != before:
            report(False, f"{path.stem} cell {number} prints what is committed",
                   f"committed:\n{before[0]}\nnow:\n{printed(cell)[0]}")
        if is_exercise(cell):
            text = printed(cell)[0]
            report(text.endswith("not implemented yet"), f"{path.stem} the stub {text[:4]} says so", text)
        clean(cell)
    for cell in executed.cells:
        if "solution" in cell.metadata.get("tags", []):
            text = printed(cell)[0]
            report("exact: yes" in text, f"{path.stem} the solution {text[:4]} is exact", text)
    if write:
        counter = 0
        for cell in cells:
            if cell.cell_type == "code":
                counter += 1
                cell.execution_count = counter
                for output in cell.outputs:
                    if "execution_count" in output:
                        output.execution_count = counter
        notebook.cells = cells
        notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                             "language_info": {"name": "python"}}
        nbformat.write(notebook, path)


def main(arguments):
    write = "--write" in arguments
    chosen = [a for a in arguments if a != "--write"]
    passed = failed = 0

    def report(good, name, details=""):
        nonlocal passed, failed
        passed, failed = passed + good, failed + (not good)
        if not good:
            print(f"FAILED: {name}\n{details}", flush=True)

    if not chosen:
        wrong_answers_are_seen(report)
    for path in sorted(HERE.glob("[0-9][0-9]_*.ipynb")):
        if chosen and path.stem[:2] not in chosen:
            continue
        start = time.time()
        run(path, write, report)
        print(f"{path.name:32s} {time.time() - start:5.1f} s", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
