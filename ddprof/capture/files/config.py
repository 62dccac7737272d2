"""Settings that `ddprof run` passes to its child processes.

The settings travel in the environment, as the path of a folder below the shim that does not exist: launchers that pass
on only PYTHONPATH pass them on, and there is no file to replace or truncate.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

_WHOLE = {"skip_steps", "window_steps", "every_steps"}
_OPTIONAL = {"apply": "", "end_after": 0}  # the shim takes their presence for a reason to import what obeys them
_SWITCHES = ("record_shapes", "stacks")
_SAFE = ","  # besides what is never quoted: it splits neither PYTHONPATH nor the settings


@dataclasses.dataclass(frozen=True)
class CaptureConfig:
    """Settings of one run. `every_steps` 0 means a single window; `ranks` is "all", "0,7" or "sample:32"."""

    run_dir: str  # absolute
    skip_steps: int = 5
    window_steps: int = 5
    every_steps: int = 0
    ranks: str = "all"
    mode: str = "trace"  # "trace" | "monitor"
    record_shapes: bool = True
    stacks: bool = True  # sample Python stacks
    apply: str = ""  # the fixes that the ranks apply (settings/wanted.py)
    end_after: int = 0  # steps after which every rank ends the script; 0: the script ends by itself

    def as_path(self) -> str:
        """A path, `skip_steps=5/.../run_dir=/shared/runs/r1`, without characters that would split PYTHONPATH."""
        fields = dataclasses.asdict(self) | {name: int(getattr(self, name)) for name in _SWITCHES}
        run_dir = _quoted(fields.pop("run_dir"), _SAFE + "/")
        for name, unset in _OPTIONAL.items():
            if fields[name] == unset:
                del fields[name]
        return "/".join([*(f"{key}={_quoted(str(value))}" for key, value in fields.items()), f"run_dir={run_dir}"])

    @classmethod
    def from_path(cls, text: str) -> CaptureConfig:
        """The configuration in a path made by `as_path`. Raises ValueError."""
        head, marker, run_dir = text.partition("/run_dir=")
        pairs = dict(pair.partition("=")[::2] for pair in head.split("/"))
        names = {field.name for field in dataclasses.fields(cls)} - {"run_dir", *_OPTIONAL}
        whole = _WHOLE | ({"end_after"} & set(pairs))
        if not marker or set(pairs) - set(_OPTIONAL) != names or not all(pairs[key].isdigit() for key in whole):
            raise ValueError(f"the settings of ddprof run are damaged: {text[:200]}")
        values: dict[str, Any] = {key: _unquoted(value) for key, value in pairs.items()}
        values.update({key: int(pairs[key]) for key in whole})
        values.update({key: pairs[key] == "1" for key in _SWITCHES})
        return cls(run_dir=_unquoted(run_dir), **values)


def _quoted(value: str, safe: str = _SAFE) -> str:
    return quote_from_bytes(os.fsencode(value), safe=safe)


def _unquoted(value: str) -> str:
    return os.fsdecode(unquote_to_bytes(value))


def rank_selected(spec: str, rank: int, world_size: int) -> bool:
    """True where `rank` opens trace windows under `--ranks spec`. Raises ValueError on an invalid spec.

    "sample:N" takes N ranks spread evenly over the job, first and last included, the same on every rank. Consecutive
    blocks, as hosts, stages and tensor-parallel groups mostly are, are all covered if there are at most N.
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
