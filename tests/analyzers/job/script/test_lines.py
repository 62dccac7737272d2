"""Time by the line of the script, library calls folded to the line that made them."""

from pathlib import Path

import numpy as np
from kineto_run import Script

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.script.lines import has_frames, lines_in

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
