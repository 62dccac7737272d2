"""Kinds of lines follow from the operators and libraries that they call; lines that cannot be cheaper are not named."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from cpu_loop import FORWARD, Chore, cpu_loop, operators
from kineto_run import Script
from labelled_runs import Runs
from sampled_stacks import with_stacks

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.script import kinds
from ddprof.analyzers.job.script.idle import script_time
from ddprof.analyzers.job.script.lines import lines_of


def calls(*names: str, count: int, inside: str = "", python_us: float = 0.0) -> Chore:
    """A function of the script, of no telling name, that calls some operators, inside a library's frame or directly."""

    def chore(script: Script) -> None:
        with script.frame("train.py(60): turn"), script.frame(inside) if inside else nullcontext():
            script.idle(python_us)
            operators(script, *names, count=count)

    return chore


def clip_beside(script: Script) -> None:
    """A library's clipping in one call, and small operators in the loop itself, of which alone is told."""
    with script.frame("train.py(60): turn"), script.frame("torch/nn/utils/clip_grad.py(100): clip"):
        script.idle(9e3)
    operators(script, "mul", "add", count=80)


def scheduler(script: Script) -> None:
    with script.frame("torch/optim/lr_scheduler.py(200): step"), script.frame("train.py(60): get_lr"):
        script.idle(5e3)


def closure(script: Script) -> None:
    """A closure that an optimizer calls: it is the script's."""
    with script.frame("train.py(30): closure"):
        operators(script, "mul", "add", count=5)
        with script.frame("model.py(9): training_step"), script.frame(FORWARD):
            operators(script, "mul", "add", "sign", "add_", count=40)


def kind(facts: RankFacts) -> tuple[kinds.LineKind, float] | None:
    """Kind of the first line, and the share of its time that remains."""
    lines = lines_of(facts, script_time(facts).stack_ns)
    if not lines:
        return None
    told = kinds.LineKinds(facts)
    found = told.of(lines[0].stacks, lines[0].stack_ns)
    return found, told.left(found, lines[0].stacks, lines[0].time_ns)


@pytest.mark.parametrize(
    ("chore", "expected"),
    [
        (calls("mul", "mul", "add", count=40), kinds.ARITHMETIC),
        (calls("linalg_vector_norm", "gt", "is_nonzero", "mul_", count=40), kinds.CLIP),
        (calls("linalg_vector_norm", "mul_", count=80, inside="torch/nn/utils/clip_grad.py(100): clip"), kinds.CLIP),
        (calls("mean", "item", "std", "item", count=40), kinds.STATISTICS),
        (calls("zero_", count=40, inside="torch/optim/optimizer.py(900): zero_grad"), kinds.ZEROING),
        (calls(count=0, inside="<built-in method sendall of socket object>", python_us=5e3), kinds.LOGGING),
        (calls(count=0, inside="logging/__init__.py(1500): info", python_us=5e3), kinds.LOGGING),
        (calls(count=0, inside="numpy/lib/function_base.py(9): unique", python_us=5e3), kinds.OTHER),
        (scheduler, kinds.OTHER),
        # One call for all tensors: it is not told.
        (calls("_foreach_norm", "_foreach_mul_", count=20, inside="torch/nn/utils/clip_grad.py(100): clip"), None),
        (clip_beside, kinds.ARITHMETIC),
        (calls("_foreach_lerp_", count=20), None),
        (lambda script: (calls("detach", count=80)(script), calls("_foreach_lerp_", count=20)(script))[0], None),
        (calls("detach", "to", count=80), kinds.OTHER),
        (calls(count=0, inside="torch/optim/lr_scheduler.py(200): step", python_us=5e3), None),
        (calls(count=0, inside="torch/optim/optimizer.py(900): zero_grad", python_us=5e3), None),
    ],
)
def test_a_line_is_told_by_what_it_calls(tmp_path: Path, chore: Chore, expected: kinds.LineKind | None) -> None:
    found = kind(cpu_loop(tmp_path, after=chore))
    assert (found and found[0]) is expected


@pytest.mark.parametrize(
    ("names", "count", "left"),
    [
        (("mul", "sub", "add"), 40, 10.0 / 60.0),  # of three operators and as much Python, one operator
        (("mean", "item"), 80, 0.0),  # of statistics that are rare nothing
    ],
)
def test_what_is_left_of_averages_and_means(tmp_path: Path, names: tuple[str, ...], count: int, left: float) -> None:
    found = kind(cpu_loop(tmp_path, after=calls(*names, count=count)))
    assert found is not None and found[1] == pytest.approx(left, abs=0.01)


@pytest.mark.parametrize(
    ("optimizer", "is_told"),
    [
        (calls("mul", "add", "sign", "add_", count=40), True),  # tensor by tensor
        (calls("_foreach_mul", "_foreach_add_", count=3), False),  # one call for all
        (closure, False),
    ],
)
def test_an_own_optimizer_is_told_where_it_goes_by_tensors(tmp_path: Path, optimizer: Chore, is_told: bool) -> None:
    found = kind(cpu_loop(tmp_path, optimizer=optimizer))
    assert (found is not None and found[0] is kinds.UPDATE) is is_told


@pytest.mark.parametrize(("caller", "expected"), [("inner", kinds.OF_MODEL), ("hooks", kinds.OTHER)])
def test_python_inside_a_model_is_no_chore_and_that_of_its_hooks_is(
    labelled: Runs, caller: str, expected: kinds.LineKind
) -> None:
    lines = {"inner": 1832, "hooks": 1845}
    stacks = [("torch/nn/modules/module.py", 1884, "_call_impl", None)]
    stacks += [("torch/nn/modules/module.py", line, "inner", 0) for line in lines.values()]
    stacks += [("model.py", 9, "forward", 1), ("model.py", 12, "work", 1 + [*lines].index(caller))]
    facts = with_stacks(labelled("clean.ddp").job.ranks[0], *stacks)
    assert kinds.LineKinds(facts).of(np.array([4]), np.array([1.0])) is expected
