"""Trackers as destinations of `ddprof report --to` and `ddprof run --log-to`: `wandb`, `mlflow:EXPERIMENT`, ..."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ddprof.capture.files.layout import MANIFEST
from ddprof.cli.answer import Destination, Send
from ddprof.errors import DdprofError, UsageError
from ddprof.untrusted.suggestions import meant

if TYPE_CHECKING:
    from ddprof.report.model import Report


# Tracker, as options and extras name it -> the package that it is written with, and our class that does.
TRACKERS = {
    "wandb": ("wandb", "WandbRun"),
    "mlflow": ("mlflow", "MlflowRun"),
    "tensorboard": ("tensorboard", "TensorboardRun"),
    "comet": ("comet_ml", "CometRun"),
}
SYNTAX = "|".join(TRACKERS) + "[:PLACE]"


@dataclass(frozen=True)
class Target:
    """A tracker, and the project, experiment or folder in it; "" leaves the choice to the tracker's own settings."""

    tracker: str
    place: str = ""


def parse_targets(option: str, texts: Iterable[str]) -> list[Target]:
    """The trackers that an option names, each once. Raises UsageError: unknown, named twice, or without its library."""
    targets: dict[str, Target] = {}
    for text in texts:
        name, _, place = text.partition(":")
        if name not in TRACKERS:
            raise UsageError(f"{option} {text}: no such tracker{meant(name, TRACKERS)}; want {SYNTAX}")
        if name in targets:
            raise UsageError(f"{option} {text}: {name} is named twice")
        package, _ = TRACKERS[name]
        if find_spec(package) is None:
            raise UsageError(f"{option} {name} needs the {package} package: pip install 'ddprof[{name}]'")
        targets[name] = Target(name, place)
    return list(targets.values())


def _sender(option: str, names: Sequence[str]) -> Send:
    targets = parse_targets(option, names)

    def send(report: Report, file: Path, path: str | None) -> None:
        from ddprof.cli.load import say
        from ddprof.slices.trackers.content import of_report
        from ddprof.slices.trackers.sending import Sending

        folder = "" if path is None else str(Path(path).resolve())
        sending = Sending(targets, _run_name(path, report), say)
        sending.log(of_report(report, file, folder))
        sending.close()
        if sending.failed:
            raise DdprofError(f"not written to {', '.join(sending.failed)}")

    return send


def _run_name(path: str | None, report: Report) -> str:
    """Name of the folder made by `ddprof run`; else the report's own name."""
    folder = Path(path).resolve() if path is not None else None
    if folder is not None and (folder / MANIFEST).is_file():
        return folder.name
    return report.run.name or "run"


DESTINATION = Destination(_sender, "ddprof.slices.trackers.follow")
