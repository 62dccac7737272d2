"""Samples of both collectors: where the time goes, and what they say of a thread that is held up."""

import gc
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hubs import on_another_thread

from ddprof.capture.files.step import FORWARD
from ddprof.capture.stacks.collector import MAX_FRAMES, ThreadCollector, make_collector

LONGEST_S = 300
TRACKER = SimpleNamespace(phase=FORWARD, index=7)  # phase timers that stand still


def make(kind: str) -> Any:
    collector = ThreadCollector(TRACKER) if kind == "python" else make_collector(TRACKER)
    if kind == "native" and isinstance(collector, ThreadCollector):
        pytest.skip("the stack collector in C was not built: no compiler")
    collector.thread, collector.is_main = threading.get_ident(), True
    collector.period_ns = 2_000_000
    return collector


@pytest.fixture(params=["native", "python"])
def collector(request: pytest.FixtureRequest) -> Any:
    return make(request.param)


@contextmanager
def sampled(collector: Any) -> Iterator[list[Any]]:
    """Sample this thread meanwhile; the samples are there when the block has ended."""
    samples: list[Any] = []

    def collect() -> None:
        collector.collect(60 * 10**9)
        WAITED_NS.append(int(Path("/proc/thread-self/schedstat").read_text().split()[1]))

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    yield samples
    collector.wake()
    thread.join(LONGEST_S)
    assert not thread.is_alive()
    samples.extend(collector.take())


def take(collector: Any, samples: list[Any], least: int) -> None:
    """Wait until there are so many samples: on a machine with more work than CPUs the sampler's turn comes late."""
    until = time.monotonic() + LONGEST_S
    while len(samples) < least and time.monotonic() < until:
        time.sleep(0.01)
        samples += collector.take()
    assert len(samples) >= least


SPENT_S: Counter[str] = Counter()
WAITED_NS: list[int] = []  # of each sampling thread that has ended: ready to run without a CPU, as Linux counts it


def for_seconds(seconds: float, *works: Callable[[], object]) -> None:
    """Do the works in turns, and keep in SPENT_S what each took."""
    SPENT_S.clear()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for work in works:
            began_s = time.perf_counter()
            work()
            SPENT_S[work.__name__] += time.perf_counter() - began_s


def pure_python() -> int:
    total = 0
    for number in range(40_000):
        total += number % 7
    return total


def waited_for_a_cpu_ns() -> int:
    """Time that threads of this process, and ended sampling ones, were ready and had no CPU."""
    alive = sum(int(path.read_text().split()[1]) for path in Path("/proc/self/task").glob("*/schedstat"))
    return alive + sum(WAITED_NS)


def test_a_sample_says_when_where_and_in_what(collector: Any) -> None:
    before_ns = time.time_ns()
    with sampled(collector) as samples:
        line = sys._getframe().f_lineno + 1
        take(collector, samples, 5)
    for at_ns, covers_ns, late_ns, phase, step, stack, _ in samples:
        assert before_ns - 10**6 <= at_ns <= time.time_ns() and covers_ns >= late_ns >= 0
        assert (phase, step) == (FORWARD, 7) and 2 <= len(stack) <= 2 * MAX_FRAMES
    here = sys._getframe().f_code
    assert line in [dict(zip(sample[5][::2], sample[5][1::2], strict=True)).get(here) for sample in samples]


@pytest.mark.parametrize("release", ["in the interpreter", "in C"])
def test_python_between_calls_is_seen_where_it_runs(release: str) -> None:
    """A thread that waits for the GIL sees code that holds it for a few milliseconds hardly ever."""
    seen: list[float] = []  # of the true share
    held = bytes(4_000_000)
    calls = {"in the interpreter": lambda: time.sleep(0.003), "in C": lambda: hashlib.sha256(held).digest()}
    before_ns = waited_for_a_cpu_ns()
    while len(seen) < 9 and max(seen, default=0.0) < 0.25:  # waiting for the GIL finds a fifteenth, every time
        with sampled(make("native")) as samples:
            for_seconds(0.5, pure_python, calls[release])
        found: Counter[str] = Counter()  # what each sample stands for, by the innermost function of this file; ns
        for sample in samples:
            names = [code.co_name for code in sample[5][::2] if code.co_filename == __file__]
            found[names[0] if names else "?"] += sample[1]
        true_share = SPENT_S["pure_python"] / sum(SPENT_S.values())
        seen.append(found["pure_python"] / (true_share * sum(found.values())))
    if max(seen) < 0.25 and waited_for_a_cpu_ns() - before_ns > 0.02 * len(seen) * 0.5e9:
        pytest.skip("the machine has more work than CPUs: the sampler's turn comes after the code that it looks for")
    assert max(seen) >= 0.25, seen


def test_a_call_that_never_returns_is_seen() -> None:
    collector, blocked = make("native"), threading.Lock()
    blocked.acquire()
    waiting = threading.Thread(target=blocked.acquire, name="waits", daemon=True)
    waiting.start()
    collector.thread, collector.is_main = waiting.ident, False
    with sampled(collector) as samples:
        take(collector, samples, 1)
    blocked.release()
    waiting.join()
    assert all(code.co_filename.endswith("threading.py") for code in samples[0][5][::2])


@pytest.mark.parametrize("changed", [{"thread": 1, "is_main": False}, {"period_ns": 0}, {"paused": True}], ids=str)
def test_a_collector_can_be_stopped(collector: Any, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in changed.items():
        monkeypatch.setattr(collector, name, value)
    with sampled(collector) as samples:
        time.sleep(0.05)
    assert samples == [] and (collector.spent_ns == 0 or "thread" in changed)
    monkeypatch.undo()
    with sampled(collector) as samples:
        take(collector, samples, 1)


def test_a_period_may_be_longer_than_a_turn_and_a_shorter_one_begins_at_once(collector: Any) -> None:
    collector.period_ns = 60_000_000
    taken: list[Any] = []
    began_ns = time.monotonic_ns()

    def turns() -> None:
        while len(taken) < 4 and time.monotonic_ns() < began_ns + LONGEST_S * 10**9:
            collector.collect(10_000_000)
            taken.extend(collector.take())

    on_another_thread(turns)
    assert 4 <= len(taken) <= (time.monotonic_ns() - began_ns) / collector.period_ns + 2
    collector.period_ns = 60 * 10**9
    with sampled(collector):
        time.sleep(0.05)
    collector.period_ns = 5_000_000
    with sampled(collector) as samples:
        take(collector, samples, 10)


def test_samples_stand_for_no_more_than_the_time_that_passed(collector: Any) -> None:
    """Not for a long pause that was planned and that another period has ended."""
    began_ns, samples = time.monotonic_ns(), list[Any]()
    for period_ns in (60 * 10**9, 5_000_000, 60 * 10**9, 2_000_000):
        collector.period_ns = period_ns
        with sampled(collector) as taken:
            time.sleep(0.05)
        samples += taken
    assert sum(covers_ns for _, covers_ns, *_ in samples) <= time.monotonic_ns() - began_ns


def test_a_late_answer_names_the_other_threads(collector: Any) -> None:
    """Something held the GIL: the thread that did is among those that are named."""
    number = 7**120_000  # printing it holds the GIL for tens of milliseconds
    limit = getattr(sys, "set_int_max_str_digits", lambda digits: None)
    limit(0)
    named, until = False, time.monotonic() + LONGEST_S
    try:
        while not named and time.monotonic() < until:  # the sampler's own turn may come when all is over
            holder = threading.Thread(target=lambda: [str(number) for _ in range(3)], name="holder", daemon=True)
            with sampled(collector) as samples:
                holder.start()
                while holder.is_alive():
                    time.sleep(0.001)
            late = [sample for sample in samples if sample[2] > 5_000_000 and sample[6]]
            named = any(ident == holder.ident for sample in late for ident, _ in sample[6])
    finally:
        limit(4300)
    assert named


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="frames are no objects until asked for on 3.11 alone")
def test_no_garbage_is_collected_while_a_stack_is_walked() -> None:
    """Who collects may let go of the GIL, and the walk ends in a frame that is gone."""
    collector, collected = make("native"), []

    def walked(depth: int) -> Any:
        if depth:
            return walked(depth - 1)
        frame, before = sys._getframe(), len(collected)
        collector.stack_of(frame)
        return len(collected) - before

    threshold = gc.get_threshold()
    gc.callbacks.append(lambda *_: collected.append(threading.get_ident()))
    gc.set_threshold(1)
    try:
        assert walked(30) == 0 and gc.isenabled()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.pop()


_COLLECTING = """
import _thread, gc, sys, threading, time
def traced(*_):
    return traced
if sys.argv[2] == "traced":
    sys.settrace(traced)
from ddprof.capture.stacks.collector import ThreadCollector, make_collector
class Tracker:
    phase, index = 1, 7
collector = ThreadCollector(Tracker()) if sys.argv[1] == "python" else make_collector(Tracker())
collector.thread, collector.is_main, collector.period_ns = threading.get_ident(), True, 200_000
def deep(level):
    if level:
        return deep(level - 1)
    time.sleep(0.001)  # the collector's thread looks at these frames, which are no objects yet
    _thread.start_new_thread(int, ())  # takes the lock under which it does
gc.callbacks.append(lambda *_: time.sleep(0.0005))
gc.set_threshold(1)
threading.Thread(target=collector.collect, args=(10**12,), daemon=True).start()
until_s = time.monotonic() + 0.4
while time.monotonic() < until_s:
    deep(20)
gc.callbacks.clear()
assert collector.end(10**9) and collector.take()
"""


@pytest.mark.parametrize("way", ["plain", "traced"])
@pytest.mark.parametrize("kind", ["native", "python"])
def test_a_collection_beside_a_look_at_all_threads_hangs_nobody(kind: str, way: str) -> None:
    """Python 3.11 looks under a lock of its own; the job stood still where a collection let go of the GIL there. Under
    a debugger it span for ever where a collection inside one sample met the request for the next."""
    make(kind)
    subprocess.run([sys.executable, "-c", _COLLECTING, kind, way], check=True, timeout=LONGEST_S / 10)


def test_nothing_is_asked_after_the_end(collector: Any) -> None:
    """The interpreter may go then: what the collector's thread calls without the GIL would end the process."""
    began, thread = threading.Event(), threading.Thread(target=lambda: (began.set(), collector.collect(60 * 10**9)))
    thread.start()
    began.wait()
    while not collector.take():
        time.sleep(0.01)
    assert collector.end(LONGEST_S * 10**9)
    thread.join(LONGEST_S)
    assert not thread.is_alive()
    collector.take()
    collector.collect(60 * 10**9)  # at once
    for_seconds(0.05, lambda: sum(range(100)))
    assert collector.take() == []


def test_a_fork_in_a_hurry_leaves_the_child_the_usual_interval_and_the_parent_its_own() -> None:
    before_s = sys.getswitchinterval()
    with sampled(make("native")):
        for_seconds(0.2, pure_python)
    assert sys.getswitchinterval() == before_s
    collector = make("native")
    collector.period_ns = 500_000
    before_s, worst_s = sys.getswitchinterval(), 0.0
    with sampled(collector):
        for _ in range(20):
            for_seconds(0.002, lambda: sum(range(1000)))
            reader, writer = os.pipe()
            if not os.fork():
                collector.abandon()
                os.write(writer, repr(sys.getswitchinterval()).encode())
                os._exit(0)
            os.close(writer)
            with os.fdopen(reader) as said:
                worst_s = max(worst_s, abs(float(said.read()) - before_s))
            os.wait()
    assert worst_s < 1e-6 and sys.getswitchinterval() == before_s
