"""Capture in one process: the hub that hooks report to.

Nothing is written before the process has proved to be a rank (a process group, or an optimizer step): launchers,
DataLoader workers and compile workers import torch too, and leave no trace.
"""

from __future__ import annotations

import atexit
import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddprof.capture import sidecar
from ddprof.capture.describe import nccl_log
from ddprof.capture.describe.observed import Observed
from ddprof.capture.describe.stacks import ended, whereabouts
from ddprof.capture.files import layout
from ddprof.capture.files.call_log import CallLog
from ddprof.capture.files.config import CaptureConfig, rank_selected
from ddprof.capture.files.control import ControlReader, Request
from ddprof.capture.files.ring import StepRing
from ddprof.capture.files.storage import write_json
from ddprof.capture.guard import Guard, say
from ddprof.capture.identity import RankIdentity, identify
from ddprof.capture.instruments.base import Instrumentor, Listeners
from ddprof.capture.journal import Journal
from ddprof.capture.signals import Watchdog
from ddprof.capture.stacks.sampler import StackSampler
from ddprof.capture.steps.native_tracker import native_tracker
from ddprof.capture.steps.own_cost import OwnCost
from ddprof.capture.steps.tracker import StepTracker
from ddprof.capture.steps.unmarked import KINDS, UnmarkedSteps
from ddprof.capture.window import flight_recorder
from ddprof.capture.window.annotate import Annotator, Range
from ddprof.capture.window.plan import WindowInCode, WindowPlan
from ddprof.capture.window.trace import TraceWindow

if TYPE_CHECKING:
    from ddprof.capture.steps._phases import StepTracker as NativeStepTracker

_JOIN_S = 20.0  # longest wait for our own compression at exit
_SETTLED_STEP = 2  # by then the roots are known
_HEAVY_NS = 200_000  # a boundary that takes longer is kept out of the next step, and says nothing about the others


class Session:
    """One per process. Hooks call `begin` and `end` around phases; everything else follows from the step boundaries."""

    def __init__(self, config: CaptureConfig) -> None:
        self.config = config
        self.folder = Path(config.run_dir)
        self.guard = Guard()
        self.annotator = Annotator()
        self.own_cost = OwnCost(self.guard)
        self.observed = Observed(self.guard)
        self.journal = Journal()
        self.control = ControlReader(
            self.folder, self._attend, self.guard.wrap(self._stuck), self.guard.wrap(self._answer)
        )
        self.window = TraceWindow(self.annotator, lambda text: self.journal.note(text), config.record_shapes)
        self.plan = WindowPlan(config.skip_steps, config.window_steps, config.every_steps, config.mode == "trace")
        self.identity: RankIdentity | None = None
        self.ring: StepRing | None = None
        self.calls: CallLog | None = None
        self.finished = False  # the flush has begun
        self.watch_root: Callable[[Any], object] = lambda _: None
        self.unmarked = [self._without_optimizers()]
        self._marked_by_script = False
        self.ending: dict[str, Any] | None = None  # how the process ended, once it has
        self._windows_allowed = True
        self._unwritable = False  # a sidecar could not be written
        self.attach([])
        self._make_tracker()
        self.stacks = self._make_sampler()
        self.guard.on_fault = self._end_window
        self.finish = self.guard.shield(self._finish)  # after a fault too: the sidecar is where it is kept
        self.watchdog = Watchdog(self.finish)
        self.process_group_exists: Callable[[], Any] = self.guard.wrap(self._identify)
        self.user_profiler_starts: Callable[[], Any] = self.guard.wrap(self._user_profiler_starts)
        self.optimizer_stepped: Callable[..., Any] = self.guard.wrap_hook(self._optimizer_stepped)
        self.open_range = self.guard.wrap(self.annotator.open)
        self.step_marked: Callable[[], Any] = self.guard.wrap(self._step_marked)
        self.in_code = WindowInCode(self)
        atexit.register(self.finish, "exit")

    def attach(self, instrumentors: Sequence[Instrumentor]) -> None:
        """Notify these of events from now on."""
        self.instrumentors = instrumentors
        self._listeners = Listeners(instrumentors)
        self._at_optimizer_step = self._listeners.optimizer_stepped

    # ------------------------------------------------------------------ phases

    def _make_tracker(self) -> None:
        """The phase timers, and the guarded hooks `begin` and `end`; in C where those were built."""
        shield = self.guard.shield
        callbacks = shield(self._boundary), shield(self.annotator.open), shield(Range.close)
        native = native_tracker(*callbacks)
        self.tracker: StepTracker | NativeStepTracker
        self.begin: Callable[..., Any]
        self.end: Callable[..., Any]
        self.optimizer_begins: Callable[[int], object]
        self.optimizer_died: Callable[[int], object]
        if native is not None:
            self.guard.lead(native)
            self.tracker, self.begin, self.end = native, native.begin, native.end
            self.optimizer_begins, self.optimizer_died = native.optimizer_begins, native.optimizer_died
        else:
            self.tracker = tracker = StepTracker(*callbacks)
            self.begin, self.end = self.guard.wrap_hook(tracker.begin), self.guard.wrap_hook(tracker.end)
            self.optimizer_begins = self.guard.wrap(tracker.optimizer_begins)
            self.optimizer_died = self.guard.wrap(tracker.optimizer_died)
        self.tracker.listening = self.annotator.listening

    def _make_sampler(self) -> StackSampler:
        return StackSampler(self.tracker, lambda: self.guard.enabled, self.journal.note)

    def _optimizer_stepped(self, optimizer: object, _: object) -> None:
        if self.identity is None:
            self._identify()
        if self.unmarked:
            self._optimizers_mark_steps()
        if (known := self.observed.optimizers.get(id(optimizer))) is None or known() is not optimizer:
            self.observed.saw_optimizer(optimizer, self.optimizer_died)
        if self._at_optimizer_step:
            self._at_optimizer_step = [hook for hook in self._at_optimizer_step if hook()]
        for watch in self.observed.step_watchers:
            watch(optimizer)
        if not self._marked_by_script:
            self.tracker.optimizer_stepped(id(optimizer))

    # ------------------------------------------------------------------ steps that no optimizer marks

    def _without_optimizers(self) -> UnmarkedSteps:
        mark, watch_root = (lambda: self.tracker.mark_step()), (lambda module: self.watch_root(module))
        return UnmarkedSteps(self.guard, mark, self._may_mark, watch_root)

    def _may_mark(self, kind: int) -> bool:
        """True where repetition may mark this process's steps; a loader's worker or another multiprocessing helper that
        runs a model is not a rank.
        """
        if self.identity is None:
            if parent_process() is not None:
                return False
            self._identify()
        self.journal.note(f"no optimizer has stepped: {KINDS[kind]} mark the steps (a script can: ddprof.step())")
        return True

    def _optimizers_mark_steps(self) -> None:
        """Handle the first optimizer step: the steps counted before it were no training, so the window opens anew."""
        before = self.unmarked.pop()
        if not before.kind:
            return
        self.tracker.mark_step()
        index = self.tracker.index
        self.journal.note(f"steps before {index} ran before the first optimizer step: {KINDS[before.kind]} marked them")
        if self.config.mode == "trace":
            self.plan.request(index + self.config.skip_steps, self.config.window_steps, "first optimizer step")

    def _step_marked(self) -> None:
        """End a step on the script's request; from now on nothing else marks steps."""
        if self.identity is None:
            self._identify()
        self._marked_by_script = True
        self.unmarked.clear()
        self.tracker.mark_step()

    # ------------------------------------------------------------------ becoming a rank

    def _identify(self) -> None:
        """Determine the identity once a process group exists, or at the first optimizer step."""
        identity = identify(self.folder)
        if self.identity is not None and (self.identity.rank_source == "c10d" or identity.rank_source != "c10d"):
            return
        if self.identity is not None and self.identity.rank != identity.rank:
            self._remove_early_files()
        self.identity = identity
        self._windows_allowed = rank_selected(self.config.ranks, identity.rank, identity.world_size)
        about = {**dataclasses.asdict(identity), "started_ns": time.time_ns()}
        self.ring = self.guard.attempt("step ring", lambda: StepRing(self.path(layout.RING_SUFFIX), about))
        self.guard.attempt("step ring", lambda: self.tracker.write_to(self.ring))
        self.calls = self.guard.attempt("log of calls", lambda: CallLog(self.path(layout.CALLS_SUFFIX)))
        self.guard.attempt("stacks", lambda: self._sample_stacks(identity))
        self.control.start()
        self.watchdog.arm(self.path(layout.FAULT_SUFFIX))
        self.write_sidecar("running")

    def _sample_stacks(self, identity: RankIdentity) -> None:
        path = self.path(layout.STACKS_SUFFIX)
        if self.config.stacks and self.stacks.path != path:
            self.stacks.start(path, dataclasses.asdict(identity))

    def _remove_early_files(self) -> None:
        """Remove files of the rank guessed from the environment, once the process group gives another."""
        while self.give_up_file():
            pass
        self.stacks.stop("another rank")
        self.stacks = self._make_sampler()
        for suffix in (layout.SIDECAR_SUFFIX, layout.STACKS_SUFFIX):
            self.path(suffix).unlink(missing_ok=True)

    def path(self, suffix: str) -> Path:
        """A file of this rank in the run folder."""
        if self.identity is None:
            raise RuntimeError("the rank is not known yet")
        return self.folder / f"{self.identity.stem}{suffix}"

    # ------------------------------------------------------------------ between two steps

    def _boundary(self, next_index: int) -> bool:
        """Close and open windows. True where that took long enough to be kept out of the next step."""
        started = time.perf_counter_ns()
        tracker, window = self.tracker, self.window
        beside_window = window.is_open or tracker.disturbed
        if window.is_open or next_index <= _SETTLED_STEP:
            for step_ended in self._listeners.step_ended:
                step_ended(next_index - 1)
        if window.is_open and self.plan.closes_at(next_index):
            self._close_window(next_index - 1, between_steps=True)
        while (request := self.control.take()) is not None:
            if self._requested(request):
                return True
        may_open = self._windows_allowed and not window.is_open
        if may_open and (reason := self.plan.opens_at(next_index)) is not None:
            self._open_window(next_index, reason)
        if window.is_open:
            window.mark_step(next_index)
        tracker.disturbed = window.compressing
        heavy = time.perf_counter_ns() - started > _HEAVY_NS
        if next_index >= self.own_cost.next_step:
            self.own_cost.step_begins(next_index, not (heavy or beside_window or window.is_open or tracker.disturbed))
        self._rest(next_index)
        for step_begins in self._listeners.step_begins:
            step_begins(next_index)
        return heavy

    def _rest(self, index: int) -> None:
        """Set the next step with work to do between steps, as step `index` begins."""
        calm = self.plan.idle and not self.window.is_open and index >= _SETTLED_STEP
        calm = calm and not self.tracker.disturbed and not self._listeners.step_begins
        self.tracker.calm_until = self.own_cost.next_step if calm else 0
        if self.control.waiting:  # asked last: it may have come while this was worked out
            self._attend()

    def _attend(self) -> None:
        """Read the requests at the beginning of the next step; also called by the thread that polls them."""
        self.tracker.calm_until = 0

    def _requested(self, request: Request) -> bool:
        """Obey a request. True where capture has ended."""
        if request.action == "stop":
            self._finish("stopped")
            self.guard.disable()
            return True
        self.plan.obey(request)
        return False

    def _open_window(self, first_step: int, reason: str) -> None:
        with self.stacks.paused():
            if not self.window.open(first_step, reason, self.plan.less_at(first_step)):
                return
        self._profiles(True)
        for window_opened in self._listeners.window_opened:
            window_opened(first_step, self.plan.last_step)

    def _close_window(self, last_step: int, same_thread: bool = True, between_steps: bool = False) -> None:
        """Stop, export, dump the flight recorder, refresh the sidecar."""
        for window_closed in self._listeners.window_closed:
            self.guard.attempt("end of a trace window", window_closed)  # whatever it raises, the profiler stops
        index = len(self.journal.windows)
        with self.stacks.paused():
            record = self.window.close(self.path(f".{index}"), last_step, same_thread)
        self._profiles(self.window.is_open)
        if record is None:
            return
        self.journal.window_closed(record)
        path, span = self.path(f".{index}{layout.FLIGHT_RECORDER_SUFFIX}"), (record["start_ns"], record["end_ns"])
        self.journal.window_called(self.calls.recent() if self.calls else [], record["start_ns"])
        reason = self.guard.attempt("flight recorder", lambda: flight_recorder.dump_window(path, *span))
        if reason:
            self.journal.note(f"window {index}: {reason}")
        if between_steps:
            for window_written in self._listeners.window_written:
                window_written(last_step)
        if same_thread:
            self.write_sidecar("running")
        record["export_pause_ns"] = time.time_ns() - record["end_ns"]

    def _end_window(self) -> None:
        """Close an open window as capture goes off: a profiler left running fills the memory, and then crashes."""
        if self.window.is_open:
            self._close_window(self.tracker.index, same_thread=threading.get_ident() == self.tracker.thread)

    def _profiles(self, profiled: bool) -> None:
        self.tracker.profiled = profiled
        self.tracker.listening = self.annotator.listening
        self.stacks.window(profiled and "stacks" not in self.window.left_out)

    def _user_profiler_starts(self) -> None:
        """End our profiler before the script's own starts, or neither would record."""
        if self.window.is_open:
            index = self.tracker.index
            self._close_window(index)
            self.journal.note(f"the trace window ended in step {index}: the script started its own profiler")

    # ------------------------------------------------------------------ the end

    def _finish(self, reason: str) -> None:
        """Flush everything still open: at exit, and before a signal kills the process."""
        if self.finished or self.identity is None:
            return
        with self.watchdog.flushing():
            self.finished = True
            self.control.stop()
            if self.window.is_open:
                self._close_window(self.tracker.index, same_thread=reason != "watchdog")
            if self.unmarked and self.unmarked[0].under_way:
                self.tracker.optimizer_stepped(0)  # the last step is as good as one of an optimizer
            self.tracker.write_to(None)  # whoever watches takes a step in the ring for a job that goes on
            self.tracker.finish()
            self.guard.attempt("stacks", lambda: self.stacks.stop(reason))
            self.ending = ended(reason, max((step.start_ns for step, _ in self.tracker.logged()), default=0))
            if reason in ("watchdog", "signal") or self.ending["error"]:
                self._dump_flight_recorder()
            self.write_sidecar(reason)
            self.guard.attempt("NCCL's log", lambda: nccl_log.clear(self.journal.nccl_log))
            self.window.join(_JOIN_S)

    def _dump_flight_recorder(self) -> None:
        """Dump every collective that is still in the recorder, to explain a hang."""
        path = self.path(layout.FLIGHT_RECORDER_SUFFIX)
        self.guard.attempt("flight recorder", lambda: flight_recorder.dump_all(path))

    def _stuck(self) -> None:
        """Write the evidence when a stop was requested but the training thread hangs; leave the job as it is."""
        self._dump_flight_recorder()
        self.journal.note(f"no step ended within 5 s of a stop request: hanging in step {self.tracker.index}")
        self.write_sidecar("running")

    def _answer(self, request: int) -> None:
        """Report this rank's stacks to the launcher, called from the thread that reads requests."""
        where = whereabouts(self.identity, self.calls, self.tracker.booked)
        entries = self.guard.attempt("flight recorder", lambda: flight_recorder.read_entries(stacks=True))
        answer = {"request": request, **where, "flight_recorder": entries}
        self.guard.attempt("where", lambda: write_json(self.path(layout.ANSWER_SUFFIX), answer))

    def write_sidecar(self, state: str) -> None:
        """Write or refresh the sidecar; an unwritable folder costs one line on stderr."""
        try:
            sidecar.write(self.path(layout.SIDECAR_SUFFIX), self, state)
        except OSError as error:
            if not self._unwritable:
                self._unwritable = True
                say(f"rank {self.identity.rank if self.identity else '?'}: nothing can be written: {error}")

    def give_up_file(self) -> bool:
        """Delete an ended job's log of calls, or else its step ring; False where there is neither."""
        file: CallLog | StepRing | None
        if self.calls is not None:
            file, self.calls = self.calls, None
        else:
            self.tracker.write_to(None)
            file, self.ring = self.ring, None
        if file is not None:
            file.close()
            file.path.unlink(missing_ok=True)
        return file is not None

    def restart_in_child(self) -> None:
        """Start afresh after a fork: the child shares nothing with its parent's capture, and may become a rank."""
        inherited, torch = self.window.is_open, sys.modules.get("torch")
        self.window.abandon()
        if inherited and torch is not None:
            # A forked DataLoader worker would record every operator into memory nobody ever reads.
            torch.autograd._enable_record_function(False)
        self.identity = self.ring = self.calls = self.ending = None
        self.finished = self._marked_by_script = False
        self.journal = Journal()
        self.guard.time_hooks(False)
        self.own_cost = OwnCost(self.guard)
        self.tracker.restart()
        self.unmarked[:] = [self._without_optimizers()]
        self._profiles(False)
        self.stacks.abandon()
        self.stacks = self._make_sampler()
        self.control.abandon()
        self.watchdog.disarm_in_child()
