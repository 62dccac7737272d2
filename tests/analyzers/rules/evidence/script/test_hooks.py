"""A communication hook that is Python of the script and holds the backward pass is told by its function."""

from pathlib import Path

import pytest
from kineto_run import Script, in_step, loaded
from labelled_runs import abstains, candidate

from ddprof.analyzers.engine import LoadedRun

RULE = "host.script"


def run(folder: Path, hook_us: float) -> LoadedRun:
    """Two ranks whose device idles for `hook_us` of each step while a hook runs."""

    def work(script: Script, rank: int, step: int) -> None:
        script.launch(dur_us=50.0, times=20)
        script.idle(20.0)
        script.host("ddprof::comm_hook train.py:12 count_large()", hook_us, "user_annotation")

    return loaded(in_step(2, 4, work), folder)


def test_a_slow_hook_is_named_and_priced_and_one_that_only_starts_is_no_finding(tmp_path: Path) -> None:
    made = run(tmp_path, 1_500.0)
    said = candidate(RULE, made.measures)
    assert "train.py:12 count_large()" in said.summary and said.ranks == ()
    # The queue of the device drains first: what it idles then is the hook's.
    assert made.pricer.gain_us(said) == pytest.approx(float(made.measures.cause_us("host_launch").max()), rel=0.1)
    assert abstains(RULE, run(tmp_path, 5.0).measures)  # there are no frames, either
