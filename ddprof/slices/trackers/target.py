"""Destinations as options name them: `wandb`, `mlflow:EXPERIMENT`, `tensorboard:FOLDER`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec

from ddprof.errors import UsageError
from ddprof.untrusted.suggestions import meant

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
