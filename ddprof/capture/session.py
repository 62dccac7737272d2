"""Capture in one process: the hub that hooks report to.

Nothing is written before the process has proved to be a rank (a process group, or an optimizer step): launchers,
DataLoader workers and compile workers import torch too, and leave no trace.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ddprof.capture import sidecar
from ddprof.capture.clock import ClockSync
from ddprof.capture.describe import nccl_log
from ddprof.capture.describe.observed import Observed
from ddprof.capture.files.config import CaptureConfig, rank_selected
from ddprof.capture.files.control import ControlReader, Request
from ddprof.capture.files.layout import FLIGHT_RECORDER_SUFFIX, RING_SUFFIX, SIDECAR_SUFFIX
from ddprof.capture.files.ring import StepRing
from ddprof.capture.guard import Guard, say
from ddprof.capture.identity import RankIdentity, identify
from ddprof.capture.journal import Journal
from ddprof.capture.steps.native_tracker import native_tracker
from ddprof.capture.steps.own_cost import OwnCost
from ddprof.capture.steps.tracker import StepTracker
from ddprof.capture.window import flight_recorder
from ddprof.capture.window.annotate import Annotator, Range
from ddprof.capture.window.plan import WindowPlan
from ddprof.capture.window.trace import TraceWindow

if TYPE_CHECKING:
    from ddprof.capture.instruments.base import Instrumentor
    from ddprof.capture.instruments.dataloader import DataLoading
    from ddprof.capture.instruments.forward import ForwardPasses
    from ddprof.capture.instruments.gradients import GradientTimes
    from ddprof.capture.instruments.syncs import HostSyncs
    from ddprof.capture.signals import Watchdog
    from ddprof.capture.steps._phases import StepTracker as NativeStepTracker

_JOIN_S = 20.0  # longest wait for our own compression at exit
_SETTLED_STEP = 2  # by then the roots are known
_HEAVY_NS = 200_000  # a boundary that takes longer is kept out of the next step, and says nothing about the others


class Session:
    """One per process. Hooks call `begin` and `end` around phases; everything else follows from the step boundaries."""

    def __init__(self, config: CaptureConfig) -> None:
        self.config = config
        self.guard = Guard()
        self.annotator = Annotator()
        self.own_cost = OwnCost(self.guard)
        self.observed = Observed(self.guard)
        self.journal = Journal()
        self.control = ControlReader(Path(config.run_dir), self._attend, self.guard.wrap(self._stuck))
        self.clock = ClockSync(config.clock)
        self.window = TraceWindow(self.annotator, self.journal.note, config.record_shapes)
        self.plan = WindowPlan(config.skip_steps, config.window_steps, config.every_steps, config.mode == "trace")
        self.identity: RankIdentity | None = None
        self.ring: StepRing | None = None
        self.nccl_log: Path | None = None
        self.finished = False  # the flush has begun
        self.flushed = False  # and ended
        self.instrumentors: list[Instrumentor] = []
        self.forward: ForwardPasses | None = None
        self.syncs: HostSyncs | None = None
        self.loading: DataLoading | None = None
        self.gradients: GradientTimes | None = None
        self.watchdog: Watchdog | None = None
        self._windows_allowed = True
        self._reason = "planned"
        self._make_tracker()
        self.finish = self.guard.wrap(self._finish)
        self.identified = self.guard.wrap(self._identified)
        self.user_profiler_starts = self.guard.wrap(self._user_profiler_starts)
        self.optimizer_stepped = self.guard.wrap_hook(self._optimizer_stepped)
        atexit.register(self.finish, "exit")

    # ------------------------------------------------------------------ phases

    def _make_tracker(self) -> None:
        """The phase timers, and the guarded hooks `begin` and `end`: in C where they were built."""
        shield = self.guard.shield
        callbacks = shield(self._boundary), shield(self.annotator.open), shield(Range.close)
        native = native_tracker(*callbacks)
        self.tracker: StepTracker | NativeStepTracker
        if native is not None:
            self.guard.lead(native)
            self.tracker, self.begin, self.end = native, native.begin, native.end
        else:
            self.tracker = tracker = StepTracker(*callbacks)
            self.begin, self.end = self.guard.wrap_hook(tracker.begin), self.guard.wrap_hook(tracker.end)
        self.tracker.listening = self.annotator.listening

    def _optimizer_stepped(self, optimizer: object, _: object) -> None:
        if self.identity is None:
            self._identified()
        if id(optimizer) not in self.observed.optimizers:
            self.observed.saw_optimizer(optimizer)
        if self.loading is not None and self.loading.trains is None:
            self.loading.optimizer_stepped()
        self.tracker.optimizer_stepped(id(optimizer))

    # ------------------------------------------------------------------ becoming a rank

    def nccl_may_start(self, backend: object) -> None:
        """A process group is about to be made: NCCL reads its log's settings when it first speaks."""
        distributed = sys.modules["torch"].distributed
        if distributed.is_nccl_available() and (backend is None or "nccl" in str(backend)) and self.nccl_log is None:
            folder = Path(self.config.run_dir)
            self.nccl_log = self.guard.attempt("NCCL's log", lambda: nccl_log.ask(folder, os.environ))

    def _identified(self) -> None:
        """Called once a process group exists, or at the first optimizer step."""
        found = identify()
        if self.identity is not None and (self.identity.source == "c10d" or found.source != "c10d"):
            return
        if self.identity is not None and self.identity.rank != found.rank:
            self._remove_early_files()
        self.identity = found
        self._windows_allowed = rank_selected(self.config.ranks, found.rank, found.world_size)
        self.ring = self.guard.attempt(
            "step ring", lambda: StepRing(self.path(RING_SUFFIX), sidecar.ring_identity(found))
        )
        self.guard.attempt("step ring", lambda: self.tracker.write_to(self.ring))
        self.guard.attempt("clock", lambda: self.clock.announce(found))
        self.control.start()
        if self.watchdog is not None:
            self.watchdog.arm()
        self.write_sidecar("running")

    def _remove_early_files(self) -> None:
        """The rank was guessed from the environment before the process group told it: the guess leaves no file
        behind."""
        self.tracker.write_to(None)
        if self.ring is not None:
            self.ring.close()
        for suffix in (RING_SUFFIX, SIDECAR_SUFFIX):
            self.path(suffix).unlink(missing_ok=True)

    def path(self, suffix: str, window: int | None = None) -> Path:
        """A file of this rank in the run folder."""
        if self.identity is None:
            raise RuntimeError("the rank is not known yet")
        middle = "" if window is None else f".{window}"
        return Path(self.config.run_dir) / f"{self.identity.stem}{middle}{suffix}"

    # ------------------------------------------------------------------ between two steps

    def _boundary(self, next_index: int) -> bool:
        """Close and open windows. True if that took long enough to be kept out of the next step."""
        started = time.perf_counter_ns()
        tracker, window = self.tracker, self.window
        beside_window = window.is_open or tracker.disturbed
        if window.is_open and self.gradients is not None:
            self.gradients.step_ended(next_index - 1)
        if window.is_open and self.plan.closes_at(next_index):
            self._close_window(next_index - 1)
        request = self.control.take()
        if request is not None and self._requested(request):
            return True
        if self._windows_allowed and not window.is_open and self.plan.opens_at(next_index):
            self._open_window(next_index)
        if window.is_open:
            if self.gradients is not None and self.plan.is_last(next_index):
                self.gradients.arm()
            window.mark_step(next_index)
        self.clock.step_boundary(self.identity)
        if self.forward is not None and next_index <= _SETTLED_STEP:
            self.forward.step_done()
        tracker.disturbed = window.compressing
        heavy = time.perf_counter_ns() - started > _HEAVY_NS
        if next_index >= self.own_cost.next_step:
            self.own_cost.step_begins(next_index, not (heavy or beside_window or window.is_open or tracker.disturbed))
        self._rest(next_index)
        return heavy

    def _rest(self, index: int) -> None:
        """Until when there is nothing to do between two steps, as step `index` begins."""
        calm = self.plan.idle and not self.window.is_open and self.clock.settled and index >= _SETTLED_STEP
        self.tracker.calm_until = self.own_cost.next_step if calm and not self.tracker.disturbed else 0
        if self.control.waiting is not None:  # asked last: it may have come while this was worked out
            self._attend()

    def _attend(self) -> None:
        """Look at the requests as the next step begins. Called from the thread that reads them, too."""
        self.tracker.calm_until = 0

    def _requested(self, request: Request) -> bool:
        """Obey a request. True if capture has ended."""
        if request.action == "stop":
            self._finish("stopped")
            self.guard.disable()
            return True
        if request.action == "trace":
            self.plan.request(request.first_step, request.steps)
            self._reason = request.reason
        return False

    def _open_window(self, first_step: int) -> None:
        if not self.window.open(first_step):
            return
        self._profiles(True)
        if self.syncs is not None:
            self.syncs.arm()

    def _close_window(self, last_step: int, same_thread: bool = True) -> None:
        """Stop, export, dump the flight recorder, refresh the sidecar."""
        if self.syncs is not None:
            self.syncs.disarm()
        if self.gradients is not None:
            self.gradients.disarm()
        index = len(self.journal.windows)
        stem = self.path("", index)
        record = self.window.close(stem, last_step, same_thread)
        self._profiles(self.window.is_open)
        if record is None:
            return
        record["reason"], self._reason = self._reason, "planned"
        self.journal.windows.append(record)
        reason = self.guard.attempt(
            "flight recorder",
            lambda: flight_recorder.dump_window(
                self.path(FLIGHT_RECORDER_SUFFIX, index), record["start_ns"], record["end_ns"]
            ),
        )
        if reason:
            self.journal.note(f"window {index}: {reason}")
        if same_thread:
            self.write_sidecar("running")
            self.clock.ping_again(f"window{index}")
        record["export_pause_ns"] = time.time_ns() - record["end_ns"]

    def _profiles(self, profiled: bool) -> None:
        self.tracker.profiled = profiled
        self.tracker.listening = self.annotator.listening

    def _user_profiler_starts(self) -> None:
        """The script starts its own profiler: ours ends first, or neither would record."""
        if self.window.is_open and not self.window.starting:
            self._close_window(self.tracker.index)
            self.journal.note(
                f"the trace window ended in step {self.tracker.index}: the script started its own profiler"
            )

    # ------------------------------------------------------------------ the end

    def _finish(self, reason: str) -> None:
        """Flush everything that is still open: at exit, and before a signal kills the process."""
        if self.finished or self.identity is None:
            return
        self.finished = True
        same_thread = reason != "watchdog"
        self.control.stop()
        if self.window.is_open:
            self._close_window(self.tracker.index, same_thread)
        self.tracker.finish()
        if reason in ("watchdog", "signal"):
            self.guard.attempt("flight recorder", lambda: flight_recorder.dump_all(self.path(FLIGHT_RECORDER_SUFFIX)))
        self.clock.stop()
        self.write_sidecar(reason)
        self.guard.attempt("NCCL's log", lambda: nccl_log.clear(self.nccl_log))
        self.window.join(_JOIN_S)
        self.flushed = True
        if self.watchdog is not None:
            self.watchdog.flushed()

    def _stuck(self) -> None:
        """The training thread hangs and somebody asked to stop: keep what explains it. The job is left as it is."""
        self.guard.attempt("flight recorder", lambda: flight_recorder.dump_all(self.path(FLIGHT_RECORDER_SUFFIX)))
        self.journal.note(f"no step ended for 5 s after a stop was asked for: hanging in step {self.tracker.index}")
        self.write_sidecar("running")

    def write_sidecar(self, state: str) -> None:
        """Write or refresh the sidecar; a folder that cannot be written costs one line on stderr."""
        try:
            sidecar.write(self.path(SIDECAR_SUFFIX), self, state)
        except OSError as error:
            if self.journal.first_time("sidecar"):
                say(f"rank {self.identity.rank if self.identity else '?'}: nothing can be written: {error}")

    def restart_in_child(self) -> None:
        """After a fork: the child shares nothing with its parent's capture, and may become a rank of its own."""
        inherited = self.window.is_open
        self.window.abandon()
        torch = sys.modules.get("torch")
        if inherited and torch is not None:
            # A forked DataLoader worker would record every operator into memory nobody ever reads.
            torch.autograd._enable_record_function(False)
        self.identity = None
        self.ring = self.nccl_log = None
        self.finished = self.flushed = False
        self.journal = Journal()
        self.guard.time_hooks(False)
        self.own_cost = OwnCost(self.guard)
        self.window.rebind(self.journal.note)
        self.tracker.restart()
        self._profiles(False)
        self.control.abandon()
        if self.watchdog is not None:
            self.watchdog.disarm_in_child()
        self.clock = ClockSync(self.config.clock)
