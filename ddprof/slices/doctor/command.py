"""`ddprof doctor`: which parts of ddprof work here, which are missing, and how to get them."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import click

from ddprof._version import __version__
from ddprof.cli.output import text_or_json
from ddprof.slices.doctor.checks import Provision, State, machine, training
from ddprof.untrusted.plain_text import clean
from ddprof.untrusted.secrets import masked_data

# Module -> what is lost without it.
COMPILED = {
    "ddprof.readers._scan": "reading traces takes three times as long",
    "ddprof.analyzers.replay._nodes": "a replay takes two to four times as long",
    "ddprof.capture.steps._phases": "phase timers cost the training thread more",
    "ddprof.capture.stacks._stacks": "stacks are sampled in Python, which sees little of a busy loop",
}
# Extra -> (the distribution it brings, what it is for).
EXTRAS = {
    "fast": ("isal", "reads packed traces faster"),
    "tables": ("pyarrow", "data frames in Python, parquet, and traces packed by zstd"),
    "dashboard": ("dash", "`ddprof serve` and the charts of `ddprof report`"),
    "patch": ("libcst", "`ddprof patch` and the patch of `ddprof tune`"),
    "dask": ("distributed", "`--engine dask://HOST:PORT`"),
    "s3": ("s3fs", "s3:// URLs"),
    "xplane": ("protobuf", "profiles of JAX and TensorFlow (*.xplane.pb)"),
    "mcp": ("mcp", "`ddprof mcp`, for assistants"),
    "wandb": ("wandb", "`--to wandb`, `--log-to wandb`"),
    "mlflow": ("mlflow", "`--to mlflow`, `--log-to mlflow`"),
    "tensorboard": ("tensorboard", "`--to tensorboard`, `--log-to tensorboard`"),
    "comet": ("comet_ml", "`--to comet`, `--log-to comet`"),
    "nvtx": ("nvtx", "NVTX ranges, for Nsight Systems"),
}


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
@text_or_json
def command(python: str, out: Path, form: str) -> None:
    """Check which parts of ddprof work here, which are missing, and how to get them.

    PyTorch is tested in a separate process, which profiles a matrix product on each kind of device.
    """
    rooms = {"ddprof": [*installation()], "training": [*training(python)], "machine": [*machine(out)]}
    if form == "json":
        rows = [{"of": of, **asdict(part), "state": part.state.value} for of, parts in rooms.items() for part in parts]
        click.echo(json.dumps(masked_data(rows), indent=2))
        return
    for parts in rooms.values():
        click.echo("\n".join(map(_line, parts)))
    missing = [part for parts in rooms.values() for part in parts if part.state is State.MISSING and part.remedy]
    click.echo(f"\n{_summary(missing)}")


def _line(part: Provision) -> str:
    remedy = f"\n{'':<27}-> {clean(part.remedy)}" if part.remedy else ""
    return f"{part.state.value:<8} {part.name:<17} {clean(part.said)}{remedy}"


def _summary(missing: Sequence[Provision]) -> str:
    names = ", ".join(part.name for part in missing)
    return f"Optional: {names}." if missing else "Nothing is missing that could be installed or set."


def installation() -> Iterator[Provision]:
    """Checks of the environment that runs this process."""
    yield Provision("ddprof", State.OK, f"{__version__}, on Python {platform.python_version()} ({platform.machine()})")
    lacking = {module: loss for module, loss in COMPILED.items() if find_spec(module) is None}
    if lacking:
        remedy = "install a C compiler and Python's headers, then ddprof again; or a wheel of this platform"
        yield Provision("compiled parts", State.MISSING, "; ".join(lacking.values()), remedy)
    else:
        yield Provision("compiled parts", State.OK, "scanner, phase timers and stack sampler are built")
    for extra, (distribution, purpose) in EXTRAS.items():
        try:
            yield Provision(f"extra {extra}", State.OK, f"{distribution} {version(distribution)}: {purpose}")
        except PackageNotFoundError:
            yield Provision(f"extra {extra}", State.MISSING, purpose, f"pip install 'ddprof[{extra}]'")
