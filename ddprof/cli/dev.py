"""`ddprof dev`: what measures ddprof itself, for those who develop it. `ddprof --help` does not list it."""

from __future__ import annotations

import click

from ddprof.cli.lazy_group import LazyGroup

DEVELOPERS = {
    "score": ("ddprof.cli.score", "Score ddprof against labelled runs, whose truth is known."),
    "bench": ("ddprof.cli.bench", "Prove on real jobs that what ddprof says is true."),
}


@click.group("dev", cls=LazyGroup, listed={"Commands": DEVELOPERS})
def command() -> None:
    """Measure ddprof itself, against runs whose truth is known."""
