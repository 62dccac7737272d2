"""TensorBoard: an event file, written by TensorBoard's own writer; neither TensorFlow nor torch is needed.

TensorBoard has no runs to attach to: it shows every folder below its --logdir. Vertex AI names one in
AIP_TENSORBOARD_LOG_DIR; else it is `runs/`, where PyTorch's SummaryWriter writes.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from ddprof.slices.trackers.content import Content

DEFAULT_FOLDER = "runs"


class TensorboardRun:
    """A TensorBoard folder, named like the run."""

    def __init__(self, name: str, place: str, live: bool) -> None:
        parent = place or os.environ.get("AIP_TENSORBOARD_LOG_DIR") or DEFAULT_FOLDER
        self._folder = os.path.join(parent, f"ddprof-{name}")
        self._writer = EventFileWriter(self._folder)

    @property
    def link(self) -> str:
        """The folder."""
        return f"{self._folder} (tensorboard --logdir {os.path.dirname(self._folder)})"

    def log(self, content: Content, step: int) -> None:
        """Log numbers as scalars, sentences and the report's summary as text, the report as a file beside them."""
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in content.numbers.items()]
        words = {**content.words, **({"ddprof/report": content.markdown} if content.markdown else {})}
        values += [_text(tag, text) for tag, text in words.items()]
        if values:
            self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        if content.html is not None and "://" not in self._folder:
            shutil.copyfile(content.html, Path(self._folder) / "ddprof-report.html")
        self._writer.flush()

    def close(self) -> None:
        """Write the rest."""
        self._writer.close()


def _text(tag: str, text: str) -> Summary.Value:
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    return Summary.Value(tag=tag, metadata=metadata, tensor=TensorProto(dtype=DT_STRING, string_val=[text.encode()]))
