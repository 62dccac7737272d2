"""Generated scripts: every combination compiles, the twin lacks the fault alone, a seed gives the same scripts."""

import difflib
import io
import re
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.strangers.__main__ import main
from benchmarks.strangers.faults import FAULTS
from benchmarks.strangers.loops import LOOPS
from benchmarks.strangers.sources import SOURCES
from benchmarks.strangers.spec import WHEN, WHO, Spec, draw, places
from benchmarks.strangers.write import write

ANY = Spec(3, "plain", "generator", "sleep", "fed", "last", "always", 9.0, True, 4, 30, 64, 2, 8)
SLOT = re.compile(r"^ *@", re.MULTILINE)
TELLING = re.compile(r"fault|slow|straggl|delay|culprit|bench|ddprof", re.IGNORECASE)


def _combinations() -> list[Spec]:
    """Each structure with each fault at each place; who and when take turns."""
    found = []
    for loop in LOOPS:
        for source in [name for name in SOURCES if LOOPS[loop].takes(name)]:
            for fault in FAULTS.values():
                for where in places(fault, loop, source):
                    fitting = [one for one in WHO if fault.fits(one, where)]
                    who = fitting[len(found) % 2 if fault.whom != ("all",) else 0]
                    when = WHEN[len(found) % len(WHEN)] if not fault.is_steady else "always"
                    spec = replace(ANY, loop=loop, source=source, fault=fault.name, where=where, who=who, when=when)
                    found.append(replace(spec, in_helper=len(found) % 3 > 0))
    return found


COMBINATIONS = _combinations()


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_combinations_compile_know_their_lines_name_nothing_that_tells_and_their_twins_lack_those(every: int) -> None:
    assert len(COMBINATIONS) > 1000
    for spec in COMBINATIONS[::every]:
        script, moved = write(spec), write(replace(spec, device="cuda"))
        for text in (script.text, script.twin, moved.text):
            compile(text, "script.py", "exec")
        assert moved.text.count(".to(device)") >= 2 and "cuda" not in script.text, spec
        assert not SLOT.search(script.text) and not TELLING.search(script.text), spec
        written = script.text.splitlines()
        body = FAULTS[spec.fault].body[-1].split("{n}")[0].strip()
        assert any(body in written[number - 1] for number in script.lines), spec
        left = [line for number, line in enumerate(written, 1) if number not in script.lines]
        kept = [line for line in script.twin.splitlines() if line]
        assert [line for line in left if line] == kept, "\n".join(difflib.unified_diff(left, kept))


def test_a_seed_and_a_number_always_give_the_same_script() -> None:
    first = [write(draw(5, number)) for number in range(30)]
    assert first == [write(draw(5, number)) for number in range(30)]
    assert first != [write(draw(6, number)) for number in range(30)]
    assert len({draw(5, number).fault for number in range(200)}) == len(FAULTS)


def test_longer_faults_are_longer() -> None:
    def repeats(amount_ms: float) -> int:
        text = write(replace(ANY, fault="python", amount_ms=amount_ms)).text
        return max(map(int, re.findall(r"\brange\((\d+)\)", text)))

    assert repeats(20.0) == 2 * repeats(10.0)


def test_what_ranks_take_turns_at_names_no_rank() -> None:
    assert replace(ANY, who="turns").culprits == replace(ANY, who="all").culprits == ()
    assert replace(ANY, who="half").culprits == (0, 1)
    assert ANY.culprits == (3,)


@pytest.mark.parametrize("number", [0, 1])
def test_a_script_can_be_shown(number: int) -> None:
    shown = io.StringIO()
    with redirect_stdout(shown):
        assert main(["show", "5", str(number)]) == 0
    assert write(draw(5, number)).text in shown.getvalue()


@pytest.mark.torch
@pytest.mark.slow
def test_generated_scripts_run_beside_their_twins_and_are_judged(tmp_path: Path) -> None:
    said = io.StringIO()
    with redirect_stdout(said):
        assert main(["run", "--seed", "5", "--count", "4", "--rounds", "0", "--out", str(tmp_path)]) == 0
    assert said.getvalue().startswith("4 scripts, ")
