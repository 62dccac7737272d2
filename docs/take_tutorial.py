"""Runs the tutorial and writes its numbers and pictures into docs/tutorial.md, docs/figures and docs/screenshots.

    python docs/take_tutorial.py RUNS

RUNS: an empty folder for the recorded runs. The training script (docs/tutorial/train.py) runs four times on two CPU
ranks: as it is, then with one fix more each time. What stands between markers in the page is replaced by what was
measured.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from take_screenshots import ROOT, Picture, browser, served, take

from ddprof.api import AnalyzedRun, analyze
from ddprof.causes import CAUSES
from ddprof.dashboard.runs.open_run import load
from ddprof.report import phrases
from ddprof.report.html.markup import Markup, tag
from ddprof.report.text import render_text

PAGE = ROOT / "docs" / "tutorial.md"
FIGURE = ROOT / "docs" / "figures" / "tutorial-steps.svg"
SCRIPT = "docs/tutorial/train.py"
STAGES = (
    ("as it is", ""),
    ("+ loader workers", "--workers 4"),
    ("+ checkpoints aside", "--workers 4 --save-aside"),
    ("+ fewer reports", "--workers 4 --save-aside --report-every 25"),
)
TRACED_STEPS = "12"
LINES = 20  # of a report, as far as the first finding's fixes
WIDTH, LEFT, BAR, GAP, TOP = 960, 170, 34, 20, 10


@dataclass(frozen=True)
class Stage:
    """One run, what was changed for it, and what `ddprof verify` said of the change."""

    name: str
    options: str
    run: AnalyzedRun
    outcome: str

    @property
    def computing(self) -> float:
        """Share of the step that computes, in per cent."""
        row = self.run.report.ledger.job
        return 100 * row["compute"] / row["wall_us"]


def program(*words: str) -> str:
    """Output of `ddprof` or another program of this environment. SystemExit where it fails."""
    bin_folder = Path(sys.executable).parent
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [str(bin_folder / words[0]), *words[1:]], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr[-2000:]}")
    return done.stdout


def measured(folder: Path) -> list[Stage]:
    """Every stage, one after the other; each change is held against what the run before predicted of it."""
    stages: list[Stage] = []
    for number, (name, options) in enumerate(STAGES, 1):
        place = str(folder / f"run{number}")
        job = ["torchrun", "--standalone", "--nproc-per-node=2", SCRIPT, *options.split()]
        program("ddprof", "run", "--steps", TRACED_STEPS, "--run-dir", place, "--", *job)
        outcome = ""
        if stages:
            before = stages[-1].run.findings[0].id
            told = program(
                "ddprof", "verify", str(folder / f"run{number - 1}"), place, "--finding", before, "--no-record"
            )
            outcome = f"$ ddprof verify run{number - 1} run{number} --finding {before}\n{told.rstrip()}"
        stages.append(Stage(name, options, analyze(place), outcome))
        print(f"{name}: {phrases.headline(stages[-1].run.report)}")
    return stages


def blocks(stages: list[Stage]) -> dict[str, str]:
    """Text between the markers of the page."""
    first, last = stages[0], stages[-1]
    rows = [
        f"| {stage.name} | {stage.run.step_us / 1e3:.0f} ms | {stage.computing:.0f} % | {_named(stage.run)} |"
        for stage in stages
    ]
    blocks = {
        "title": f"# Tutorial: from {first.computing:.0f} % to {last.computing:.0f} % of the step spent computing",
        "table": "\n".join(["| run | step | computing | first finding |", "|---|---:|---:|---|", *rows]),
    }
    for number, stage in enumerate(stages, 1):
        report = render_text(stage.run.report).splitlines()
        blocks[f"run{number}"] = "\n".join(["```text", *report[:LINES], "```"])
        if stage.outcome:
            blocks[f"outcome{number}"] = "\n".join(["```console", stage.outcome, "```"])
    return blocks


def _named(run: AnalyzedRun) -> str:
    return f"`{run.findings[0].id}`" if run.findings else "none"


def written(text: str, blocks: dict[str, str]) -> str:
    """The page with its blocks. SystemExit where it has no place for one."""
    for name, block in blocks.items():
        text, count = re.subn(
            rf"(<!-- {name} -->\n\n).*?(\n\n<!-- /{name} -->)",
            lambda m, b=block: m[1] + b + m[2],
            text,
            flags=re.DOTALL,
        )
        if count != 1:
            raise SystemExit(f"{PAGE}: {count} places for {name}")
    return text


def figure(stages: list[Stage]) -> str:
    """The mean step of every run as a bar, on one scale, by cause."""
    longest = max(stage.run.step_us for stage in stages)
    scale = (WIDTH - LEFT - 90) / longest
    parts: list[Markup] = []
    seen: dict[str, None] = {}
    for number, stage in enumerate(stages):
        top = TOP + number * (BAR + GAP)
        parts.append(tag("text", stage.name, x=LEFT - 10, y=top + 22, text_anchor="end"))
        at = float(LEFT)
        row = stage.run.report.ledger.job
        for cause, known in CAUSES.items():
            width = row.get(cause, 0.0) * scale
            parts.append(tag("rect", x=f"{at:.1f}", y=top, width=f"{width:.1f}", height=BAR, fill=known.light))
            if width > 14:
                seen[cause] = None
                middle = f"{at + width / 2:.1f}"
                parts.append(tag("text", known.letter, x=middle, y=top + 22, text_anchor="middle", fill="#fff"))
            at += width
        parts.append(tag("text", f"{stage.run.step_us / 1e3:.0f} ms", x=f"{at + 8:.1f}", y=top + 22))
    height = TOP + len(stages) * (BAR + GAP) + 30
    words = " · ".join(f"{CAUSES[cause].letter} {CAUSES[cause].label}" for cause in seen)
    parts.append(tag("text", words, x=LEFT, y=height - 10))
    ground = tag("rect", width=WIDTH, height=height, fill="#fff")
    title = tag("title", "The mean step of each run by cause")
    style = {"font_family": "sans-serif", "font_size": 14, "role": "img"}
    return tag(
        "svg", title, ground, *parts, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {height}", **style
    )


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    folder = parser.parse_args().runs.resolve()
    stages = measured(folder)
    FIGURE.write_text(figure(stages) + "\n", encoding="utf-8")
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), blocks(stages)), encoding="utf-8")
    with browser() as driver:
        for name, number in (("tutorial-before", 1), ("tutorial-after", len(stages))):
            with served(load([str(folder / f"run{number}")])) as address:
                take(driver, address, Picture(name, "/timeline?", whole=False))  # as it opens


if __name__ == "__main__":
    main()
