"""What a reader is given: one file (or one part of one) and the files that belong to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ddprof.errors import NoUsableInput
from ddprof.model import HealthNote
from ddprof.outside.plain_text import encodable


@dataclass(frozen=True)
class Source:
    """One rank's trace on disk. Frozen and picklable, so that a pool of processes can be handed sources.

    `path` is a local path or any fsspec URL; `member` names a file inside an archive; `part` a worker inside a file
    that holds several (a Horovod or Megatron timeline, a two-GPU Nsight capture). `stamp`: what a store tells of the
    file that changes with its content.
    """

    path: str
    format: str
    part: str | None = None
    member: str | None = None
    sidecar_path: str | None = None
    flight_recorder_path: str | None = None
    manifest_paths: tuple[str, ...] = ()
    size_bytes: int = 0
    mtime_ns: int = 0
    stamp: str = ""

    @property
    def state(self) -> tuple[int, str]:
        """Tells what lies at a path from what lay there before."""
        return self.mtime_ns, self.stamp

    @property
    def label(self) -> str:
        """How messages and reports name it: path, archive member and part, in text that can be written anywhere."""
        inside = f"!{self.member}" if self.member else ""
        return encodable(f"{self.path}{inside}" + (f" [{self.part}]" if self.part else ""))


@dataclass(frozen=True)
class Inventory:
    """What was found: sources, what was wrong or ignored, and the sources grouped by run (a label and its sources)."""

    sources: tuple[Source, ...]
    health: tuple[HealthNote, ...] = ()
    runs: tuple[tuple[str, tuple[Source, ...]], ...] = field(default=())


class OnlyLogs(NoUsableInput):
    """Nothing that was given is a trace, and some of it is a text log of a training job: `sources`."""

    def __init__(self, message: str, sources: tuple[Source, ...] = ()) -> None:
        super().__init__(message)
        self.sources = sources
