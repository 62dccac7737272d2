"""Comet, by its own library.

COMET_EXPERIMENT_KEY names the experiment that the script opened; else a new one is made. COMET_API_KEY,
COMET_WORKSPACE, COMET_PROJECT_NAME, COMET_START_ONLINE and COMET_OFFLINE_DIRECTORY are read by the library.
"""

from __future__ import annotations

import logging
import os

# Read as comet_ml is imported, which otherwise patches the libraries of the other trackers in this process.
os.environ.setdefault("COMET_DISABLE_AUTO_LOGGING", "1")

import comet_ml

from ddprof.slices.trackers.content import Content

DEFAULT_PROJECT = "ddprof"
_UNLOGGED = (  # nothing of this process is of interest: it is not the training script
    *("log_code", "log_graph", "parse_args", "log_git_metadata", "log_git_patch", "log_env_details", "auto_log_co2"),
    *("auto_output_logging", "auto_param_logging", "auto_metric_logging"),
)


class CometRun:
    """An open experiment of Comet."""

    def __init__(self, name: str, place: str, live: bool) -> None:
        logging.getLogger("comet_ml").setLevel(logging.ERROR)
        attached = os.environ.get("COMET_EXPERIMENT_KEY")
        project = place or os.environ.get("COMET_PROJECT_NAME") or DEFAULT_PROJECT
        own_name = None if attached else name
        config = comet_ml.ExperimentConfig(name=own_name, display_summary_level=0, **dict.fromkeys(_UNLOGGED, False))
        self._experiment = comet_ml.start(
            project_name=None if attached else project, experiment_key=attached or None, experiment_config=config
        )

    @property
    def link(self) -> str:
        """The experiment's page; for an offline one its key and its archive's folder."""
        folder = getattr(self._experiment, "offline_directory", None)
        if folder is not None:
            return f"{os.path.join(folder, self._experiment.id)}*.zip (comet upload sends it)"
        return str(self._experiment.url or "")

    def log(self, content: Content, step: int) -> None:
        """Log numbers as metrics, sentences as others, the report as an asset and its summary as text."""
        for key, value in content.numbers.items():
            self._experiment.log_metric(key, value, step=step)
        for key, text in content.words.items():
            self._experiment.log_other(key, text)
        if content.markdown:
            self._experiment.log_text(content.markdown, step=step)
        if content.html is not None:
            self._experiment.log_asset(str(content.html), file_name="ddprof-report.html")

    def close(self) -> None:
        """Upload the rest, or write the archive."""
        self._experiment.end()
