"""MLflow, by its own client.

MLFLOW_RUN_ID names the run that the script opened, which then is not ended here; else a new one is made.
MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME are read as the library reads them.
"""

from __future__ import annotations

import os
import time

from mlflow.entities import Metric, RunTag
from mlflow.tracking import MlflowClient

from ddprof.slices.trackers.content import Content

DEFAULT_EXPERIMENT = "ddprof"
_MOST_METRICS = 1000  # of one request of MLflow's REST API
_RETRIES = "3"  # a server that is not there: seconds, where MLflow's own seven retries take minutes


class MlflowRun:
    """An open run of MLflow."""

    def __init__(self, name: str, place: str, live: bool) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", _RETRIES)
        self._client = MlflowClient()
        attached = os.environ.get("MLFLOW_RUN_ID")
        if attached:
            run = self._client.get_run(attached)
        else:
            experiment = place or os.environ.get("MLFLOW_EXPERIMENT_NAME") or DEFAULT_EXPERIMENT
            run = self._client.create_run(self._experiment_id(experiment), run_name=name)
        self._id, self._experiment, self._own = run.info.run_id, run.info.experiment_id, not attached

    def _experiment_id(self, name: str) -> str:
        experiment = self._client.get_experiment_by_name(name)
        return str(experiment.experiment_id if experiment is not None else self._client.create_experiment(name))

    @property
    def link(self) -> str:
        """The run's page on a server, else the client's storage."""
        uri = str(self._client.tracking_uri).rstrip("/")
        if uri.startswith(("http://", "https://")):
            return f"{uri}/#/experiments/{self._experiment}/runs/{self._id}"
        return f"run {self._id} in {uri}"

    def log(self, content: Content, step: int) -> None:
        """Log numbers as metrics, sentences as tags, the report as an artifact."""
        now_ms = int(time.time() * 1e3)
        metrics = [Metric(key, value, now_ms, step) for key, value in content.numbers.items()]
        for first in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(self._id, metrics=metrics[first : first + _MOST_METRICS])
        if content.words:
            tags = [RunTag(key.replace("/", "."), text) for key, text in content.words.items()]
            self._client.log_batch(self._id, tags=tags)
        if content.markdown and self._own:
            self._client.set_tag(self._id, "mlflow.note.content", content.markdown)
        if content.html is not None:
            self._client.log_artifact(self._id, str(content.html), "ddprof")

    def close(self) -> None:
        """End the run if it is ddprof's own."""
        if self._own:
            self._client.set_terminated(self._id)
