"""Damages of the files of a run folder: every field of a sidecar, every kind of file in place of one."""

import copy
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ddprof.capture.files.layout import host_label
from ddprof.capture.files.ring import StepRing
from ddprof.capture.files.step import Step

DEAD = 2**22 + 7  # no process has such an id: above what Linux gives
STEM = f"rank0.{host_label()}.{DEAD}.0"  # of a rank that was killed
SIDECAR: dict[str, Any] = {
    **{"schema": "ddprof.run/1", "state": "running", "rank": 0, "world_size": 2, "host": "h", "restart": 0},
    **{"versions": {"torch": "2.9"}, "steps_total": 6, "notes": ["a note"]},
    "overhead": {"bare_step_ns": 100, "profiled_step_ns": 110, "own_ns_per_step": 1},
    "steps": [{"index": n, "start_ns": 100 * n, "end_ns": 100 * n + 90, "data_ns": 3} for n in range(6)],
    "windows": [{"first_step": 2, "trace_path": "t.gz"}],
}
# What JSON can say where something else belongs.
VALUES = (
    *("null", "true", "7", "-1", "1.5", "1e999", "NaN", "-Infinity", "18446744073709551616", '""', '"x"', '"\\ud800"'),
    *("[]", "{}", "[[]]", '{"a":1}', "[null]", '["x"]', "[1e400]", '[{"index":null}]', '[{"index":1e99}]', "9" * 400),
    "[" * 100_000,
)


def documents() -> Iterator[bytes]:
    """The sidecar with each of its fields, outer and inner, replaced by each value, and without it."""
    for path in _places(SIDECAR):
        for value in VALUES:
            document = copy.deepcopy(SIDECAR)
            inner = document
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = "@"
            yield json.dumps(document).replace('"@"', value).encode()
    for key in SIDECAR:
        yield json.dumps({name: value for name, value in SIDECAR.items() if name != key}).encode()


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def step(number: int, dur_ns: int = 90, profiled: bool = False) -> Step:
    return Step(number, number * 100, number * 100 + dur_ns, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0, profiled)


def ring(path: Path, rank: int = 0) -> None:
    made = StepRing(path, {"rank": rank, "host": "h", "started_ns": 5}, capacity=32)
    for number in range(20):
        made.write(step(number))
    made.close()


def _scribble(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.seek(64)
        stream.write(b"\xff\x00{[" * 64)


def _replace(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replaced(path: Path) -> None:
        path.unlink()
        make(path)

    return replaced


# Each takes the path of a whole file and damages it.
DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: os.truncate(path, 0),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "scribbled": _scribble,
    "nonsense": _replace(lambda path: path.write_bytes(b"\xff\xfe nonsense")),
    "an empty object": _replace(lambda path: path.write_text("{}")),
    "a list": _replace(lambda path: path.write_text("[1, 2]")),
    "deep": _replace(lambda path: path.write_text('{"a":' * 100_000)),
    "huge": _replace(lambda path: (path.touch(), os.truncate(path, 1 << 33))),  # sparse
    "gone": Path.unlink,
    "FIFO": _replace(os.mkfifo),
    "folder": _replace(Path.mkdir),
    "link to nothing": _replace(lambda path: path.symlink_to("nowhere")),
    "link to itself": _replace(lambda path: path.symlink_to(path.name)),
    "device": _replace(lambda path: path.symlink_to("/dev/zero")),
    "unreadable": lambda path: path.chmod(0),
}
