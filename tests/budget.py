"""The CPU budget of a fast test: one that costs more fails, with its name and what it cost.

CPU seconds of the test and of its processes, so that a busy machine fails nobody; what shared fixtures cost is theirs.
A slower core spends more on the same, which is measured when a test exceeds."""

import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

# Whole suite: 900 CPU s for 6,000 tests. A bare `torchrun` of two ranks is 4.3 s, a recorded job of 14 steps 7.6 s.
LIMIT_CPU_S = 8.0
# What fails: fifteen tests of 5 to 8 CPU s cost up to 1.6 times as much in another sitting on a shared host, in one
# state of the code (25 Nov 2026).
FAILS_AT = 2.0
# CPU s on the machine of those figures, otherwise idle (AMD EPYC, Python 3.11, 25 Nov 2026): of a loop, and of a
# process that imports torch, as all that start a job do. On 27 Nov the loop took 0.09 s and the import 2.15 s: what
# reads files and fills caches may be slow where arithmetic is not.
WORK_CPU_S = 0.11
IMPORT_CPU_S = 1.4
_BEGUN_S = pytest.StashKey[float]()
_SHARED_S = pytest.StashKey[float]()


def spent_cpu_s() -> float:
    """CPU seconds of this process, of its children that have ended, and (Linux) of those that live below it."""
    return sum(os.times()[:4]) + sum(map(_living_cpu_s, _descendants(os.getpid())))


def slowness() -> float:
    """CPU time of the same work here and now over that on the reference machine, at least 1."""
    return max(1.0, min(_work() for _ in range(3)) / WORK_CPU_S, min(_import() for _ in range(2)) / IMPORT_CPU_S)


def _import() -> float:
    begun_s = sum(os.times()[2:4])
    subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False)
    return sum(os.times()[2:4]) - begun_s


def _work() -> float:
    begun_s, total, kept = time.process_time(), 0, dict[int, int]()
    for number in range(600_000):
        kept[number % 1000] = total
        total += number * number % 7
    return time.process_time() - begun_s


def _descendants(pid: int) -> Iterator[int]:
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in file.read_text(encoding="ascii").split()]
        except OSError:  # the thread has ended
            continue
        for child in children:
            yield child
            yield from _descendants(child)


def _living_cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:  # the process has ended, and is counted when it is waited for
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # utime, stime, cutime, cstime: proc_pid_stat(5)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The counter of this test begins."""
    item.stash[_SHARED_S] = 0.0
    item.stash[_BEGUN_S] = spent_cpu_s()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Charge a shared fixture to no test, whichever needs it first."""
    if fixturedef.scope == "function":
        return (yield)
    stash, begun_s = request._pyfuncitem.stash, spent_cpu_s()
    shared_before_s = stash.get(_SHARED_S, 0.0)
    try:
        return (yield)
    finally:  # one that asks for another by name holds its cost
        stash[_SHARED_S] = shared_before_s + spent_cpu_s() - begun_s


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The verdict on a fast test that passed, and cost more than the budget."""
    report = yield
    if call.when == "call" and report.passed and not item.get_closest_marker("slow"):
        cost_s = spent_cpu_s() - item.stash[_BEGUN_S] - item.stash[_SHARED_S]
        limit_s = FAILS_AT * LIMIT_CPU_S
        if cost_s > limit_s and cost_s > limit_s * slowness():
            report.outcome = "failed"
            report.longrepr = (
                f"{item.nodeid} passed, but cost {cost_s:.1f} CPU s; a fast test may cost {LIMIT_CPU_S:g}, "
                f"on a slow machine {limit_s:g}: share what it sets up, ask for less, or mark it slow "
                "(CONTRIBUTING.md, Which tests to run)"
            )
    return report
