"""Weights & Biases, by its own library.

WANDB_RUN_ID names the run that the script opened; else a new one is made. While the script still writes to it, W&B
wants the second writer in shared mode, and not as the primary one, whose end would end the run ("Log distributed
training experiments", docs.wandb.ai). WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY, WANDB_DIR are read by the library.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import wandb

from ddprof.slices.trackers.content import Content

DEFAULT_PROJECT = "ddprof"


class WandbRun:
    """An open run of W&B. `live`: the script may be writing to the same run now."""

    def __init__(self, name: str, place: str, live: bool) -> None:
        attached = os.environ.get("WANDB_RUN_ID") or None
        project = place or os.environ.get("WANDB_PROJECT") or DEFAULT_PROJECT
        self._run = wandb.init(
            project=project,
            id=attached,
            resume="allow" if attached else None,
            name=None if attached else name,
            settings=wandb.Settings(**settings(bool(attached) and live, os.environ)),
        )
        self._name = name
        self._run.define_metric("ddprof/training_step")
        self._run.define_metric("ddprof/*", step_metric="ddprof/training_step")

    @property
    def link(self) -> str:
        """The run's page; for an offline run its folder, which `wandb sync` uploads."""
        if self._run.settings.mode in ("offline", "dryrun"):
            return f"{self._run.settings.sync_dir} (wandb sync uploads it)"
        return str(self._run.url or "")

    def log(self, content: Content, step: int) -> None:
        """Log numbers as history and summary, sentences as summary, the report as an artifact."""
        if content.numbers:
            self._run.log({**content.numbers, "ddprof/training_step": step})
        for key, text in content.words.items():
            self._run.summary[key] = text
        if content.html is not None:
            artifact = wandb.Artifact(f"ddprof-{artifact_name(self._name)}", type="ddprof-report")
            artifact.add_file(str(content.html), name="ddprof-report.html")
            self._run.log_artifact(artifact)

    def close(self) -> None:
        """Finish writing; in shared mode the run goes on.

        The library's own process still writes after `finish`; its end is awaited, so that files of an offline run are
        complete. Another open run of this process keeps it alive.
        """
        self._run.finish()
        if wandb.run is None:
            wandb.teardown()


def settings(shared: bool, environment: Mapping[str, str]) -> dict[str, Any]:
    """Library settings for a writer other than the training script, without console, code, packages and machine."""
    quiet: dict[str, Any] = {"silent": True, "console": "off", "disable_git": True, "save_code": False}
    quiet |= {"x_disable_stats": True, "x_disable_meta": True, "x_save_requirements": False}
    if not shared or environment.get("WANDB_MODE", "online") != "online":
        return quiet
    return {**quiet, "mode": "shared", "x_primary": False, "x_label": "ddprof", "x_update_finish_state": False}


def artifact_name(name: str) -> str:
    """An artifact name in W&B's letters, digits and `-_.`."""
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII)[:100] or "run"
