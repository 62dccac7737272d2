"""A line of the script has one name in all findings, and no other line has it."""

from dataclasses import replace
from pathlib import Path

from cpu_loop import cpu_loop
from kineto_run import Script

from ddprof.analyzers.job.script.places import shown_place
from ddprof.sidecar import HostWait, Sidecar


def evaluate(script: Script) -> None:
    with script.frame("parts/evaluate.py(9): run"):
        script.idle(1e3)


def test_a_file_is_called_as_in_stacks_and_by_more_of_its_path_where_two_share_a_name(tmp_path: Path) -> None:
    lines = [f"/home/me/{file}:7" for file in ("train.py", "parts/evaluate.py", "a/loss.py", "b/loss.py", "alone.py")]
    waits = tuple(HostWait(source_line=line, what="item", count=1, total_ns=1) for line in lines)
    facts = replace(cpu_loop(tmp_path, after=evaluate), sidecar=Sidecar(syncs=waits))
    shown = [shown_place(facts, line) for line in lines]
    assert shown == ["train.py:7", "parts/evaluate.py:7", "a/loss.py:7", "b/loss.py:7", "alone.py:7"]
    assert shown_place(facts, "?") == "?"
