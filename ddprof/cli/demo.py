"""`ddprof demo`: a verdict on a shipped sample, in seconds, without a GPU."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import click

from ddprof.cli.load import load_open_run, load_reports, say
from ddprof.cli.output import chosen_format, deliver, deliver_pages, output_options
from ddprof.cli.reading import Reading
from ddprof.errors import NoUsableInput, UsageError

TRUTH = "truth.json"


@click.command("demo")
@click.argument("name", required=False)
@click.option("--list", "list_only", is_flag=True, help="List the samples and stop.")
@output_options()
def command(name: str | None, list_only: bool, form: str | None, output: Path | None) -> None:
    """Analyze a shipped sample trace (default: the first one with a fault)."""
    root = sample_root()
    samples = read_samples(root)
    if list_only:
        for sample, truth in samples.items():
            click.echo(f"{sample:<28} {truth['title']}")
        return
    chosen = choose(samples, name)
    say(f"sample {chosen}: {samples[chosen]['title']}")
    paths, form = [str(root / chosen / "traces")], chosen_format(form, output)
    if form == "html":
        deliver_pages(load_open_run(paths, Reading(cache=False)), output)
    else:
        reports = load_reports(paths, Reading(cache=False))
        deliver(reports, form, output, [["ddprof demo --list", "ddprof run -- torchrun train.py"]] * len(reports))


def sample_root() -> Path:
    """The folder of the installed sample traces."""
    root = resources.files("ddprof.sample_traces")
    if not isinstance(root, Path):
        raise NoUsableInput("the samples are packed in an archive; unpack the installation to use ddprof demo")
    return root


def read_samples(root: Path) -> dict[str, dict[str, Any]]:
    """Name -> truth.json of every sample under `root`. Raises NoUsableInput where there is none or one is damaged."""
    samples: dict[str, dict[str, Any]] = {}
    for file in sorted(root.glob(f"*/{TRUTH}")):
        try:
            truth = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise NoUsableInput(f"{file}: {error}") from error
        samples[file.parent.name] = truth
    if not samples:
        raise NoUsableInput(f"{root}: this installation has no sample traces")
    return samples


def choose(samples: dict[str, dict[str, Any]], name: str | None) -> str:
    """The named sample, else the first that has a fault, else the first. Raises UsageError for an unknown name."""
    if name is None:
        return next((sample for sample, truth in samples.items() if truth.get("findings")), next(iter(samples)))
    if name not in samples:
        raise UsageError(f"no sample {name!r}; there are {', '.join(samples)}")
    return name
