"""What is seen while tuning goes on: a line for each run, and a line at the bottom where somebody watches."""

from io import StringIO

from rich.console import Console

from ddprof.slices.tuning.view import TuneView
from ddprof.trials.model import Trial


def _played(is_terminal: bool) -> str:
    console = Console(file=StringIO(), force_terminal=is_terminal, width=120, color_system=None)
    view = TuneView(console)
    with view.shown():
        for label, step_us in (("diagnosis", 90_000.0), ("baseline", 100_000.0), ("num_workers=4", 50_000.0)):
            view.began(label, 0, 300.0)
            view.tick()
            view.ended(Trial(label, (), "000", 12.0, 50, step_us), is_new=label != "baseline")
        view.ended(Trial("num_workers=8", (), "000", 3.0, failed="out of\x1b memory"), is_new=True)
        view.began("num_workers=4", 4, 250.0)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_each_run_has_a_line_and_who_watches_sees_what_runs() -> None:
    assert _played(is_terminal=False).splitlines() == [
        "ddprof: diagnosis: traced, 50 steps (12 s)",
        "ddprof: baseline: 100 ms per step (made before)",
        "ddprof: num_workers=4: 50 ms per step (12 s)",
        "ddprof: num_workers=8: out of? memory (3 s)",
    ]
    seen = _played(is_terminal=True)
    assert "run 4  num_workers=4  0 s; 250 s of the budget left" in seen
    assert "best run so far 50 ms (num_workers=4), as it is 100 ms" in seen and "ddprof: baseline: 100 ms" in seen
