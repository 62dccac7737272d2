"""Lines of a loader's workers, and the calls that they are in."""

import json
from pathlib import Path
from typing import Any

import pytest

from ddprof.readers.script.worker_lines import worker_lines
from ddprof.readers.side_files.stacks import read_stacks

LIB = "/usr/lib/python3.11"
FETCH = "/env/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py"
NO_CALL = (None, None)
COUNTS = [[[stack, 0, 0, 3, 300, 0], [3, 0, 0, 1, 100, 0], [4, 0, 0, 5, 500, 0]] for stack in (2, 5)]


def process(tmp_path: Path, inner: list[str | int] | None, source: str | None, worker: int = 0) -> Any:
    """A worker that was seen 3 times in the line and once in another; 5 times it waited for something to do."""
    frames = [["", "...", 0], [FETCH, "fetch", 54], ["/job/data.py", "__getitem__", 10], ["/job/data.py", "other", 30]]
    frames += [[f"{LIB}/multiprocessing/connection.py", "wait", 947], inner or ["", "...", 0]]
    stacks = [[-1, 0], [-1, 1], [1, 2], [1, 3], [-1, 4], [2, 5]]
    tables = {"frames": frames, "sources": [None, None, source, "return 1", None, None], "stacks": stacks}
    lines: list[dict[str, Any]] = [{"kind": "begin", "worker": worker, "phases": ["rest"], "path": ["/job"]}]
    lines += [{"kind": kind, "from": 0, kind: rows} for kind, rows in tables.items()]
    lines.append({"kind": "counts", "counts": COUNTS[inner is not None]})
    path = tmp_path / f"rank0.worker{worker}.1.stacks.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (process,), notes = read_stacks([str(path)])
    assert notes == []
    return process


@pytest.mark.parametrize(
    ("inner", "source", "told"),
    [
        (None, "fcntl.flock(f, fcntl.LOCK_EX)", ("flock", "lock")),
        *((None, line, ("acquire", "lock")) for line in ("self.gate.acquire()", "with self.lock:")),
        (None, 'con.execute("BEGIN EXCLUSIVE")', ("execute", "lock")),
        (None, 'cursor.execute("select x from t where i = 3 for update")', ("execute", "lock")),
        (None, "got += c.recv(512 - len(got))", ("recv", "network")),
        (None, 'self.db.execute("select 1").fetchone()', ("execute", "database")),
        *((None, line, NO_CALL) for line in ("with open(path) as f: return f.read()", "self.flocks = 3", None)),
        ([f"{LIB}/multiprocessing/synchronize.py", "__enter__", 95], "with self.gate:", ("acquire", "lock")),
        ([f"{LIB}/socket.py", "readinto", 700], "return self.client.get(key)", ("readinto", "network")),
        ([f"{LIB}/json/decoder.py", "decode", 3], "self.flock(x)", NO_CALL),
    ],
)
def test_the_call_is_told_by_a_library_or_by_the_line(tmp_path: Path, inner: Any, source: Any, told: Any) -> None:
    lines = worker_lines([process(tmp_path, inner, source)])
    rows = [(line.line, line.function, line.samples, line.share, line.call, line.kind) for line in lines]
    assert rows == [(10, "__getitem__", 3, 0.75, *told), (30, "other", 1, 0.25, *NO_CALL)]
    assert lines[0].file == "data.py"


def test_workers_of_a_rank_are_one_sum_and_the_rank_itself_is_none(tmp_path: Path) -> None:
    both = [process(tmp_path, None, "x.acquire()", worker) for worker in (0, 1)]
    assert [(line.samples, line.share) for line in worker_lines(both)] == [(6, 0.75), (2, 0.25)]
    both[0].worker = None
    assert worker_lines(both)[0].samples == 3 and worker_lines([]) == ()
