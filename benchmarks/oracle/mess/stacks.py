"""stacks: Python frames of every module around every operator (`with_stack=True`), many times the other events."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.rank import Rank
from benchmarks.oracle.rows import COMPLETE, Row
from benchmarks.oracle.spec import Mess, Scenario

FRAMES = (
    "nn.Module: Block_0", "torch/nn/modules/module.py(1755): _call_impl", "model.py(63): forward",
    "torch/nn/modules/module.py(1927): __getattr__", "torch/_jit_internal.py(101): is_scripting",
    "<built-in method _get_tracing_state of PyCapsule object at 0x7f2d3b1550b0>", "<built-in function linear>",
)  # fmt: skip
LEVEL_US = 0.05


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """Any job."""
    return with_mess(scenario, Mess("stacks"))


def rows(rank: Rank, rows: list[Row], mess: Mess) -> list[Row]:
    """Frames around each outermost operator of the main thread, and the script around all of it."""
    place = next((row.place for row in rows if row.is_mark and row.category == "user_annotation"), "")
    begin, end = rank.marks[0], rank.marks[-1]
    frames = [("train.py(121): <module>", begin - 20.0, end - begin + 30.0),
              ("train.py(88): main", begin - 19.0, end - begin + 28.0)]  # fmt: skip
    covered = begin
    for row in rows:
        if row.category == "cpu_op" and row.place == place and row.start >= covered:
            covered = row.start + row.dur
            for depth, name in enumerate(FRAMES):
                inset = LEVEL_US * (len(FRAMES) - depth)
                frames.append((name, row.start - inset, row.dur + 2.0 * inset))
    return rows + [
        Row(COMPLETE, "python_function", name, place, start, dur, f'"Python parent id": {n}, "Python id": {n + 1}')
        for n, (name, start, dur) in enumerate(frames)
    ]


KIND = MessKind("stacks", "Python frames around every operator", add, rows=rows)
