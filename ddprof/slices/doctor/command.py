"""`ddprof doctor`: what works here, what is missing, and how to get it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from ddprof.outside.plain_text import clean
from ddprof.slices.doctor.installation import installation
from ddprof.slices.doctor.machine import machine
from ddprof.slices.doctor.model import Provision, State
from ddprof.slices.doctor.training import training


@click.command("doctor")
@click.option(
    "--python", metavar="PATH", default=sys.executable, help="The interpreter that trains.  [default: this one]"
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("ddprof-runs"),
    help="Where runs would be written.",
    show_default=True,
)
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
def command(python: str, out: Path, form: str) -> None:
    """Say what of ddprof works here, what is missing, and how to get it.

    PyTorch is asked in a process of its own, which profiles a matrix product on each kind of device.
    """
    rooms = {"ddprof": [*installation()], "training": [*training(python)], "machine": [*machine(out)]}
    if form == "json":
        rows = [{"of": of, **asdict(part), "state": part.state.value} for of, found in rooms.items() for part in found]
        click.echo(json.dumps(rows, indent=2))
        return
    for found in rooms.values():
        click.echo("\n".join(map(_line, found)))
    missing = [part for found in rooms.values() for part in found if part.state is State.MISSING and part.remedy]
    click.echo(f"\n{_summary(missing)}")


def _line(part: Provision) -> str:
    remedy = f"\n{'':<27}-> {clean(part.remedy)}" if part.remedy else ""
    return f"{part.state.value:<8} {part.name:<17} {clean(part.said)}{remedy}"


def _summary(missing: Sequence[Provision]) -> str:
    names = ", ".join(part.name for part in missing)
    return f"To get, if you want it: {names}." if missing else "Nothing is missing that could be installed or set."
