"""One document feeds every screen: no two of them disagree on a run."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("dash", reason="the dashboard needs dash (pip install 'ddprof[dashboard]')")

from benchmarks.oracle.generate import main as generate
from ddprof.dashboard.runs.open_run import load
from ddprof.errors import DdprofError
from tests.consistency.checks import CHECKS
from tests.consistency.screens import Screens
from tests.dashboard.browsing import one_in

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
NAMES = [file.parent.name for file in sorted(SAMPLES.glob("*/truth.json"))]
SEED, PLAIN, MESSY = 150_000, 36, 24
ScreensOf = Callable[[Path], Iterator[Screens]]
SLOW = {"marks": pytest.mark.slow}
GENERATED = [((), 1), pytest.param((), PLAIN, **SLOW), pytest.param(("--messy",), MESSY, **SLOW)]


@pytest.fixture
def screens_of(tmp_path: Path) -> ScreensOf:
    """`screens_of(folder)`: the runs in a copy of it (facts are kept beside traces); none where there is none."""

    def made(folder: Path) -> Iterator[Screens]:
        try:
            opened = load([str(shutil.copytree(folder, tmp_path / folder.name))])
        except DdprofError:
            return
        yield from map(Screens, opened)

    return made


def disagreements(screens: Screens) -> list[str]:
    """Disagreements by check."""
    return [f"{name}: {words}" for name, check in CHECKS.items() for words in check(screens)]


@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_a_sample_reads_alike_everywhere(screens_of: ScreensOf, name: str) -> None:
    runs = list(screens_of(SAMPLES / name))
    assert len(runs) == 1 and disagreements(runs[0]) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", ["traces", "oracle_samples"])
def test_real_traces_read_alike_everywhere(screens_of: ScreensOf, shared_dir: Path, part: str) -> None:
    folders = sorted(f for f in shared_dir.glob("traces/*/*" if part == "traces" else f"{part}/*") if f.is_dir())
    found = {f.name: disagreements(screens) for f in folders for screens in screens_of(f)}
    assert len(found) > 5 and {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(("options", "count"), GENERATED, ids=["one", "plain", "messy"])
def test_generated_runs_read_alike(screens_of: ScreensOf, tmp_path: Path, options: tuple[str, ...], count: int) -> None:
    generate([str(tmp_path / "made"), "--count", str(count), "--seed", str(SEED + len(options) * 500), *options])
    made = sorted(tmp_path.glob("made/*/traces"))
    found = {f.parent.name: disagreements(s) for f in made for s in screens_of(f.rename(f.parent / f.parent.name))}
    assert len(found) > count / 2 and {name: words for name, words in found.items() if words} == {}


def test_a_screen_that_says_another_number_is_found(screens_of: ScreensOf) -> None:
    screens = next(screens_of(SAMPLES / "late_loader"))
    said = (screens.terminal, screens.markdown, screens.cards, screens.first_cards, screens.file, screens.file_text)
    assert all(said) and disagreements(screens) == []
    first, *others = screens.report.findings
    gain = first.recoverable_us
    more = replace(first, recoverable_us=replace(gain, value=gain.value * 1.5, high=gain.high * 2))
    screens.opened = replace(screens.opened, report=replace(screens.report, findings=(more, *others)))
    told, screens_named = "\n".join(disagreements(screens)), ("terminal", "Markdown", "card", "file", "headline")
    assert [name for name in screens_named if f"the {name}" not in told] == [] and "predictions say" in told


def test_a_headline_of_another_finding_is_found(screens_of: ScreensOf) -> None:
    screens = next(screens_of(SAMPLES / "late_loader"))
    report = replace(screens.report, findings=tuple(replace(f, ranks=(0,)) for f in screens.report.findings))
    screens.opened = replace(screens.opened, report=report)
    assert "does not name rank 0" in "\n".join(disagreements(screens))
