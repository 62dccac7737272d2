"""What `ddprof run` tells the processes it starts: one small JSON file beside the shim."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from ddprof.capture.files.layout import SCHEMA
from ddprof.capture.files.storage import write_json


@dataclasses.dataclass(frozen=True)
class CaptureConfig:
    """Settings of one run. `every_steps` 0 means a single window; `ranks` is "all", "0,7" or "sample:32"."""

    run_dir: str
    package_dir: str  # the folder that holds the ddprof package, for environments that do not have it installed
    version: str
    skip_steps: int = 5
    window_steps: int = 5
    every_steps: int = 0
    ranks: str = "all"
    mode: str = "trace"  # "trace" | "monitor"
    record_shapes: bool = True
    clock: str = "auto"  # "auto": ping only between hosts; "always": also within one (tests); "off"
    schema: str = SCHEMA

    def save(self, path: Path) -> None:
        """Write as JSON. Raises OSError."""
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: Path) -> CaptureConfig:
        """Read what `save` wrote; unknown keys (a newer writer) are ignored. Raises OSError, ValueError, TypeError."""
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{key: value for key, value in raw.items() if key in known})


def rank_selected(spec: str, rank: int, world_size: int) -> bool:
    """Whether `rank` opens trace windows under `--ranks spec`. Raises ValueError on a spec that cannot be read.

    "sample:N" takes N ranks spread evenly over the job, the first and the last included, the same on every rank.
    """
    if spec == "all":
        return True
    if spec.startswith("sample:"):
        count = min(int(spec.removeprefix("sample:")), world_size)
        if count <= 0:
            raise ValueError(f"--ranks {spec}: the sample must hold at least one rank")
        if count == 1:
            return rank == 0
        return rank in {round(i * (world_size - 1) / (count - 1)) for i in range(count)}
    return rank in {int(part) for part in spec.split(",")}
