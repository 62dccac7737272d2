"""Twelve generated scripts, run for real on two ranks: the first loud finding names ranks, line and mechanism. Of those
that differ from another by what works, or how or where it waits, alone, the other is in the usual run.

One script of each kind of fault that strangers bring most often, at 1.5 to 3 times the step, so that no scatter of a
shared machine decides; `python -m benchmarks.strangers run` draws the others, and measures their twins."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks.strangers.execute import run
from benchmarks.strangers.judge import loud, right_in, said
from benchmarks.strangers.spec import Spec

pytestmark = pytest.mark.torch
ATTEMPTS = 3


def _spec(loop: str, source: str, fault: str, where: str, who: str, amount_ms: float = 30.0) -> Spec:
    return Spec(0, loop, source, fault, where, who, "always", amount_ms, True, 2, 24, 256, 2, 32)


SLOW = partial(pytest.param, marks=pytest.mark.slow)
DRAWN = (
    _spec("plain", "generator", "sleep", "fed", "last"),
    _spec("closures", "list of tensors", "python", "forward", "last"),
    SLOW(_spec("trainer", "map loader", "json", "callback", "first")),
    SLOW(_spec("accumulation", "list of tensors", "numpy", "after", "last")),
    SLOW(_spec("two models", "generator", "sleep", "hook", "first")),
    _spec("manual all-reduce", "list of tensors", "gc", "after", "last"),
    _spec("fsdp2", "thread", "socket", "loss", "first"),
    _spec("lbfgs", "list of tensors", "evaluation", "after", "all", 120.0),
    SLOW(_spec("autocast", "map loader, 2 workers", "python", "item", "all")),
    SLOW(_spec("plain", "short epochs", "sleep", "collate", "last", 60.0)),
    _spec("plain", "generator", "barrier", "between", "all"),
    _spec("closures", "list of tensors", "checkpoint", "after", "first"),
)


@pytest.mark.parametrize("spec", DRAWN, ids=lambda spec: f"{spec.fault}-{spec.where}".replace(" ", "-"))
def test_the_first_finding_names_ranks_line_and_mechanism(
    tmp_path: Path, repo_root: Path, ddprof: Callable[..., tuple[int, str, str]], spec: Spec
) -> None:
    """Its ranks share one import of torch; those of slow tests and of measurements are torchrun's. On two idle cores,
    and beside four busy processes, each is right at once (2026-11-28); what a neighbour disturbs is recorded again."""
    forked = [sys.executable, f"{repo_root}/tests/capture/scripts/forked_ranks.py", str(spec.ranks)]
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        assert not run(spec, folder, rounds=0, names=["script"], launcher=forked)
        code, out, err = ddprof("analyze", str(folder / "script" / "latest"), "--format", "json")
        assert code == 0, err
        report, about = json.loads(out), json.loads((folder / "spec.json").read_text())
        if all(right_in(next(iter(loud(report)), None), spec, about).values()):
            return
    if report["verdict"]["headline"].startswith("Not judged: the machine is busy"):
        pytest.skip("the machine is busy, and the report judges nobody")
    pytest.fail(said(report))
