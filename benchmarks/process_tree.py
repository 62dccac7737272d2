"""Cost of a command: CPU seconds with its children, wall seconds, peak memory summed over its process tree."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_S = 0.05
PSS_EVERY = 10  # samples: the kernel walks all pages of a process for it
_PAGE_BYTES = resource.getpagesize()
_KIB = 1024


@dataclass(frozen=True)
class Cost:
    """One run of a command.

    Memory in 10^6 bytes: `rss_mb` counts a page shared by two processes twice, `pss_mb` once; `child_rss_mb` is that of
    the largest process that the command started, 0 where it starts none.
    """

    cpu_s: float
    wall_s: float
    rss_mb: float
    pss_mb: float
    exit_code: int
    stdout: str
    child_rss_mb: float = 0.0


def measure(command: Sequence[str], env: Mapping[str, str] | None = None) -> Cost:
    """Run the command to its end.

    CPU is user + system of all waited-for children (Linux: /proc is sampled for memory).
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as sink:  # a pipe that nobody reads would stop a command that says much
        process = subprocess.Popen(command, stdout=sink, text=True, env=env and {**os.environ, **env})
        rss, pss, child = _watch(process)
        wall = time.perf_counter() - start
        sink.seek(0)
        output = sink.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, wall, rss / 1e6, pss / 1e6, process.returncode, output, child / 1e6)


def _watch(process: subprocess.Popen[str]) -> tuple[int, int, int]:
    """Peak RSS and PSS in bytes, summed over the tree, and of its largest child, until the process has ended."""
    rss = pss = child = samples = 0
    while process.poll() is None:
        tree = _tree(process.pid)
        each = [_rss_bytes(pid) for pid in tree]
        rss, child = max(rss, sum(each)), max([child, *each[1:]])
        if samples % PSS_EVERY == 0:
            pss = max(pss, sum(map(_pss_bytes, tree)))
        samples += 1
        time.sleep(SAMPLE_S)
    return rss, pss, child


def _tree(root: int) -> list[int]:
    """The process and its descendants."""
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                queue += map(int, children.read_text().split())
            except OSError:  # ended meanwhile
                continue
    return found


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):  # ended meanwhile
        return 0


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # ended meanwhile
        return 0
    return sum(int(line.split()[1]) * _KIB for line in lines if line.startswith("Pss:"))


def machine() -> dict[str, str | int]:
    """CPU model and cores in use, for the head of a result file."""
    info = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "unknown")
    return {"cpu": model, "cores": len(os.sched_getaffinity(0))}
