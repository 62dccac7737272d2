"""Lines of the script: their time, their names, those behind a cause, and those of threads beside the training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from captured import sidecar_of
from cpu_loop import cpu_loop, python
from kineto_run import Script
from labelled_runs import Runs
from sampled_stacks import totals, with_stacks

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.script.lines import has_frames, lines_in, shown_place
from ddprof.analyzers.job.script.occupying import calls_beside, sampled_share, seen_evaluating
from ddprof.analyzers.job.script.threads import busy_threads, threads_alone
from ddprof.model import SCRIPT_TOTALS
from ddprof.sidecar import HostWait, Sidecar
from ddprof.tables import concat

EVERYTHING = np.array([0], np.int64), np.array([10**12], np.int64)


def recorded(folder: Path, frames: bool = True) -> RankFacts:
    """10 ms of which 6 are in a library that `clean` calls, 2 in `clean` itself, and 2 in `main`."""
    script = Script()
    script.launch()
    if frames:
        with script.frame("train.py(3): main"):
            with script.frame("train.py(40): clean"):
                script.idle(200.0)
                with script.frame("numpy/lib/base.py(9): unique"), script.frame("<built-in method sort at 0x1>"):
                    script.idle(6_000.0)
            script.idle(2_000.0)
    script.launch()
    script.step(1, 1_000.0)
    return script.facts(folder)


def test_time_is_of_the_line_that_called_a_library_within_the_stretches_alone(tmp_path: Path) -> None:
    facts = recorded(tmp_path)
    clean, main = lines_in(facts, EVERYTHING)
    assert (clean.file, clean.line, clean.function) == ("train.py", 40, "clean")
    assert clean.time_ns == 6_200_000 and clean.words == "train.py:40 clean(), in <built-in method sort>"
    assert (main.words, main.time_ns) == ("train.py:3 main()", 2_000_000)
    start = int(facts.script_spans["start_ns"][0])
    (line,) = lines_in(facts, (np.array([start]), np.array([start + 150_000])))
    assert (line.words, line.time_ns) == ("train.py:40 clean()", 150_000)
    facts = recorded(tmp_path, frames=False)
    assert not has_frames(facts) and lines_in(facts, EVERYTHING) == []


def test_a_comprehension_is_part_of_the_function_around_it(tmp_path: Path) -> None:
    script = Script()
    script.launch()
    with script.frame("train.py(3): f"), script.frame("train.py(40): clean"), script.frame("train.py(42): <listcomp>"):
        script.idle(5_000.0)
    script.launch()
    script.step(1, 1_000.0)
    (line,) = lines_in(script.facts(tmp_path), EVERYTHING)
    assert line.words == "train.py:40 clean(), in train.py:42 <listcomp>"


def test_a_file_is_called_as_in_stacks_and_by_more_of_its_path_where_two_share_a_name(tmp_path: Path) -> None:
    lines = [f"/home/me/{file}:7" for file in ("train.py", "parts/evaluate.py", "a/loss.py", "b/loss.py", "alone.py")]
    waits = tuple(HostWait(source_line=line, what="item", count=1, total_ns=1) for line in lines)
    facts = replace(cpu_loop(tmp_path, after=python(("parts/evaluate.py(9): run", 1e3))), sidecar=Sidecar(syncs=waits))
    shown = [shown_place(facts, line) for line in lines]
    assert shown == ["train.py:7", "parts/evaluate.py:7", "a/loss.py:7", "b/loss.py:7", "alone.py:7"]
    assert shown_place(facts, "?") == "?"


def looped(labelled: Runs, samples: int) -> RankFacts:
    """A rank whose loop trains a model, and calls `score`, which calls the model as well, so often beside the steps."""
    module = "torch/nn/modules/module.py"
    calls = (module, 2, "_call_impl", 0), ("train.py", 30, "score", 0), (module, 2, "_call_impl", 2)
    facts = with_stacks(labelled("clean.ddp").job.ranks[0], ("train.py", 1, "main", None), *calls)
    return replace(facts, script_totals=totals(("forward", 1, 50), ("rest", 3, samples), ("rest", 0, 2)))


def test_a_function_that_calls_the_model_beside_the_steps_evaluates(labelled: Runs) -> None:
    facts = looped(labelled, 20)
    seen = seen_evaluating(facts)
    assert seen is not None and (seen.line, seen.samples, seen.of) == ("train.py:30 score()", 20, 72)
    longer = facts.script_totals.replace(time_ns=[50, 28, 2])  # of a call that keeps the interpreter
    told = seen_evaluating(replace(facts, script_totals=longer))
    assert told and (told.samples, told.share) == (20, 28 / 80)
    assert calls_beside(replace(facts, script_totals=longer), "time_ns") == (28, 80)
    training = facts.script_totals.take(facts.script_totals["stack"] != 3)
    assert seen_evaluating(replace(facts, script_totals=training)) is None
    assert sampled_share(facts, "train.py score") == 20 / 72 and sampled_share(facts, "train.py other") == 0
    met = totals(("collective", 1, 7), ("collective", 3, 40))
    facts = replace(facts, script_totals=concat(SCRIPT_TOTALS, [facts.script_totals, met]))
    assert calls_beside(facts) == (20 + 40, 72 + 47)
    trained = facts.script_totals.take(facts.script_totals["phase"] != "rest")
    assert calls_beside(replace(facts, script_totals=trained)) == (0, 50 + 47)


SPINS = "Thread-1 (watch)"


def rank(folder: Path, number: int, cpu_ns: int, in_watch: int = 9) -> RankFacts:
    """A rank with a thread that was so long on a CPU in a window of 1 s, seen in `watch` and, once, in the loop."""
    facts = cpu_loop(folder, after=python(("train.py(60): watch", 4_000.0)), rank=number)
    functions = facts.script_frames["function"][facts.script_stacks["frame"]].tolist()
    window = {"dur_ns": 10**9, "cpu_ns": 1, "beside": [{"name": SPINS, "cpu_ns": cpu_ns}] if cpu_ns else []}
    seen = [("rest", functions.index(name), 1) for name in ("watch", "main")]
    sidecar = sidecar_of({"cpu_waits": {"windows": [window], "run": window}})
    return replace(facts, sidecar=sidecar, script_totals=totals(*seen, thread=SPINS, time_ns=[in_watch, 1]))


def test_a_thread_has_its_line_its_share_and_a_rank_if_no_peer_has_it(tmp_path: Path) -> None:
    facts = rank(tmp_path, 0, 600_000_000)
    (thread,) = busy_threads(facts)
    assert (thread.line, thread.share) == ("train.py:60 watch()", 0.6)
    assert busy_threads(replace(facts, script_totals=SCRIPT_TOTALS.empty())) == []
    assert list(threads_alone([rank(tmp_path, number, 600_000_000 * number) for number in range(2)])) == [1]
    assert threads_alone([rank(tmp_path, number, 600_000_000, 9 * number) for number in range(2)]) == {}  # other lines
