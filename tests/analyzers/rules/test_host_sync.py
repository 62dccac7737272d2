"""Blocking calls inside the step, and who makes them."""

from dataclasses import replace
from pathlib import Path

import pytest
from captured import with_sidecars
from kineto_run import Script
from labelled_runs import Labelled, abstains, candidate, fires, run_of
from meeting_hosts import facts_of, train

ID = "host.sync"


def test_names_the_calls_the_idle_time_and_the_line_of_the_script(faulty: Labelled) -> None:
    said = fires(faulty, ID)
    assert said.fixes[0].current
    assert said.lost_us == pytest.approx(faulty.label["ledger"]["job"]["host_sync"], rel=0.02)
    line = {"source_line": "/home/me/train.py:88", "source": "total += loss.item()", "what": "item"}
    said = candidate(ID, with_sidecars(faulty, {"syncs": [{**line, "count": 5, "total_ns": 9_000}]}))
    assert said.summary.endswith(", at train.py:88") and (said.fixes[0].current or "").endswith(" at train.py:88")
    assert said.evidence[0].text.startswith("train.py:88: total += loss.item()") and said.fixes[0].patch is not None
    assert "# /home/me/train.py:88\n- total += loss.item()\n+ total += loss.detach()" in said.fixes[0].patch


def waits(script: Script, rank: int, step: int) -> None:
    script.synchronise("cudaStreamSynchronize")
    script.idle(1_500.0)  # whatever it is, nothing records it


def test_hosts_that_may_wait_for_one_another_are_not_judged_and_one_alone_is(tmp_path: Path) -> None:
    assert "may wait" in abstains(ID, run_of(facts_of(train(3, waits, meets=False), tmp_path)).measures)
    (facts,) = facts_of(train(1, waits, meets=False), tmp_path)
    assert candidate(ID, run_of([facts]).measures)
    named = replace(facts, identity=replace(facts.identity, source="file name"))
    assert "may wait" in abstains(ID, run_of([named]).measures)
