"""A thread of the script that computes on one rank beside its training thread."""

from dataclasses import replace
from pathlib import Path

from captured import sidecar_of
from cpu_loop import cpu_loop
from kineto_run import Script
from sampled_stacks import totals

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.script.threads import busy_threads, threads_alone
from ddprof.model import SCRIPT_TOTALS

SPINS = "Thread-1 (watch)"


def watch(script: Script) -> None:
    with script.frame("train.py(60): watch"):
        script.idle(4_000.0)


def rank(folder: Path, number: int, cpu_ns: int) -> RankFacts:
    """A rank with a thread that was so long on a CPU in a window of 1 s, seen in `watch` and shorter in the loop."""
    facts = cpu_loop(folder, after=watch, rank=number)
    functions = facts.script_frames["function"][facts.script_stacks["frame"]].tolist()
    window = {"dur_ns": 10**9, "cpu_ns": 1, "beside": [{"name": SPINS, "cpu_ns": cpu_ns}] if cpu_ns else []}
    seen = [("rest", functions.index(name), 1) for name in ("watch", "main")]
    sidecar = sidecar_of({"cpu_waits": {"windows": [window], "run": window}})
    return replace(facts, sidecar=sidecar, script_totals=totals(*seen, thread=SPINS, time_ns=[9, 1]))


def test_a_thread_has_its_line_its_share_and_a_rank_if_no_peer_has_it(tmp_path: Path) -> None:
    facts = rank(tmp_path, 0, 600_000_000)
    (thread,) = busy_threads(facts)
    assert (thread.line, thread.share) == ("train.py:60 watch()", 0.6)
    assert busy_threads(replace(facts, script_totals=SCRIPT_TOTALS.empty())) == []
    ranks = [rank(tmp_path, number, 600_000_000 if number == 1 else 0) for number in range(2)]
    assert list(threads_alone(ranks)) == [1]
    assert threads_alone([rank(tmp_path, number, 600_000_000) for number in range(2)]) == {}
