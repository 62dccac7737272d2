"""A communication hook that is Python of the script and holds the backward pass is told by its function."""

from __future__ import annotations

from pathlib import Path

import pytest
from kineto_run import Script, meet

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.job.assemble import job_facts
from ddprof.findings import Abstention, Candidate

RULE = "host.script"
HOOK = "ddprof::comm_hook train.py:12 count_large()"


def run(folder: Path, hook_us: float) -> LoadedRun:
    """Two ranks whose device idles for `hook_us` of each step while a hook runs."""
    scripts = [Script() for _ in range(2)]
    for number in range(4):
        begun = [script.now_us for script in scripts]
        for script in scripts:
            for _ in range(20):
                script.launch(dur_us=50.0)
            script.idle(20.0)
            script.add(HOOK, "user_annotation", script.now_us, hook_us, 1, {})
            script.idle(hook_us)
        meet(scripts)
        for script, begin in zip(scripts, begun, strict=True):
            script.synchronise()
            script.step(number + 1, begin)
    facts = [script.facts(folder, rank, len(scripts)) for rank, script in enumerate(scripts)]
    return LoadedRun("made", job_facts(facts), ())


def test_a_slow_hook_is_named_with_its_line_and_priced(tmp_path: Path) -> None:
    made = run(tmp_path, 1_500.0)
    (said,) = catalogue()[RULE].detect(made.measures)
    assert isinstance(said, Candidate)
    assert "train.py:12 count_large()" in said.summary
    assert said.ranks == ()
    # The queue of the device drains first: what it idles then is the hook's.
    assert made.pricer.gain_us(said) == pytest.approx(float(made.measures.cause_us("host_launch").max()), rel=0.1)


def test_a_hook_that_only_starts_its_communication_is_no_finding(tmp_path: Path) -> None:
    (said,) = catalogue()[RULE].detect(run(tmp_path, 5.0).measures)
    assert isinstance(said, Abstention)  # there are no frames, either
