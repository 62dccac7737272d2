"""One `ddprof run` except the job itself: run folder, environment, watching, manifest, upload."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ddprof.capture.files.config import CaptureConfig
from ddprof.capture.files.layout import MANIFEST
from ddprof.capture.files.storage import write_json
from ddprof.capture.guard import say
from ddprof.capture.launcher import manifest, run_folder
from ddprof.capture.launcher.chores import chore, stated_s
from ddprof.capture.launcher.hang import LOOK_S, Explained, HangWatch
from ddprof.capture.launcher.host.gpus import GpuWatch, Nvml
from ddprof.capture.launcher.host.topology import read_topology
from ddprof.capture.launcher.monitor import JobMonitor, WindowCost
from ddprof.capture.launcher.run_folder import SharedJob, job_of
from ddprof.capture.launcher.salvage import salvage
from ddprof.capture.launcher.sent import LogTo, RunUpload, is_url
from ddprof.capture.launcher.shim import child_environment, obstacle
from ddprof.capture.launcher.summary import RunSummary, ToApply, applied_line, summarize

Explain = Callable[[Path], Explained | None]  # why the job hangs or has failed, from what its ranks left in the folder


@dataclass(frozen=True)
class RunOptions:
    """The options of `ddprof run`."""

    out: str
    name: str | None
    run_dir: Path | None
    skip: int
    steps: int
    every: int
    ranks: str
    mode: str
    max_overhead: float | None = None  # share of a step by which one in a window may be longer
    stacks: bool = True
    shared: bool = False  # other users may read the run folder
    on_hang: str = "dump"
    to_apply: ToApply | None = None
    end_after: int = 0
    log_to: tuple[str, ...] = ()  # experiment trackers
    follower: str = ""  # the module that writes to them


class CapturedRun:
    """A run, prepared before the job starts. Raises OSError where no folder can be made, ValueError where no child
    could be captured; everything later is a chore that may fail without the job noticing.
    """

    def __init__(self, options: RunOptions, command_line: Sequence[str], explain: Explain | None = None) -> None:
        self._options = options
        self._command_line = command_line
        started_ns = time.time_ns()
        job = job_of(command_line, os.environ)
        self._folder = _make_folder(options, command_line, started_ns / 1e9, job)
        self.environment = child_environment(_config(self._folder.path, options), os.environ)
        self.environment |= options.to_apply.variables if options.to_apply else {}
        given = {key: getattr(options, key) for key in ("skip", "steps", "every", "ranks", "mode", "stacks")}
        if options.max_overhead is not None:
            given["max_overhead"] = options.max_overhead
        if options.end_after:
            given["end_after"] = options.end_after
        if options.to_apply:
            given["apply"] = list(options.to_apply.words)
        self._begun = manifest.begin(command_line, given, started_ns, job)
        self._write(self._begun, "nothing says how the run was started until it has ended")
        nvml = chore("NVIDIA's library", "GPUs are not watched", Nvml.open)
        self._gpus = GpuWatch(nvml)
        self._explain = explain = explain or (lambda _: None)
        place, abort = self._folder.path, options.on_hang == "abort"
        look_s = stated_s("DDPROF_HANG_LOOK_S", LOOK_S)  # for tests
        self._hangs = HangWatch(place, explain, abort, look_s) if self._leads else None
        self._uploads = RunUpload(place, options.out) if is_url(options.out) else None
        logs = bool(options.log_to) and self._leads
        self._log_to = LogTo(place, place.name, options.log_to, options.follower) if logs else None
        has_more = options.every > 0 or options.mode == "monitor"
        self._window_cost = WindowCost(place, options.max_overhead) if has_more and self._leads else None
        self._monitor: JobMonitor | None = None
        if options.mode == "monitor":
            make = partial(JobMonitor, place, options.steps, self._leads, os.getpid(), self._gpus)
            self._monitor = chore("monitor mode", "no counters and no windows on trouble", make)

    @property
    def tick(self) -> Callable[[], int | None]:
        """The function to call twice a second while the job runs; a signal that it returns is sent to the job."""
        watch: Callable[[], None] | None = None
        if self._monitor is not None:
            watch = self._monitor.tick
        elif self._gpus.exists:
            watch = self._gpus.tick

        def tick() -> int | None:
            if self._uploads is not None:
                self._uploads.start()  # not before the child is there: it is forked from a process without threads
            if self._log_to is not None:
                chore("the trackers", "nothing is written to them", self._log_to.start)
            if watch is not None:
                watch()
            if self._window_cost is not None:
                self._window_cost.tick()
            return self._hangs.tick() if self._hangs is not None else None

        return tick

    def end(self, code: int) -> None:
        """Summarise the files of the job, which ended with `code`, and print folder and next command in one line."""
        path = self._folder.path
        notes = chore("steps of killed ranks", "they stay in their step rings", lambda: salvage(path)) or []
        hang = self._hangs.found if self._hangs is not None else None
        if self._hangs is not None:
            tidy = partial(self._hangs.tidy, failed=bool(code))
            chore("answers of the ranks", "some are left there", tidy)
        summary = chore("the sum of the ranks", "the manifest names none", lambda: summarize(path)) or RunSummary()
        ended = chore("the end of the manifest", "it is lacking", lambda: self._ended(summary, code, notes))
        written = ended is not None and self._write(ended, "nothing says how the run ended")
        if code or hang:
            chore("the reason", f"ddprof hang {path} gives it", lambda: self._say_why(code))
        if self._options.to_apply:
            chore("what was applied", "the manifest may tell", lambda: say(applied_line(summary.applied)))
        chore("the last line", f"the run is in {path}", lambda: say(self._last_line(summary, written)))
        if self._log_to is not None:
            chore("the trackers", f"ddprof report {path} --to NAME writes to them", self._log_to.end)
        if self._uploads is not None:
            uploaded = chore("the upload", f"the run stays in {path}", self._uploads.end)
            if uploaded is not None:
                say(uploaded.line(path))

    @property
    def _leads(self) -> bool:
        """True where this `ddprof run` requests windows and keeps step times of all ranks: one per job."""
        return self._folder.manifest.name == MANIFEST

    def _ended(self, summary: RunSummary, code: int, notes: Sequence[str]) -> dict[str, Any]:
        return {
            **manifest.end(self._begun, summary, code, time.time_ns(), notes, self._leads),
            **({"applied": summary.applied} if self._options.to_apply else {}),
            "hang": None if self._hangs is None else self._hangs.found,
            "triggered": [] if self._monitor is None else self._monitor.reasons,
            "gpus": chore("the GPUs", "the manifest lacks them", self._gpus.summary) or [],
            "topology": chore("the topology", "the manifest lacks it", read_topology),
        }

    def _say_why(self, code: int) -> None:
        """Print why the job failed, or hung until it was ended, where the ranks' files show it."""
        explained = self._explain(self._folder.path)
        hang = self._hangs.found if self._hangs is not None else None
        if (
            explained is not None
            and explained.kind != "none"
            and (hang is None or explained.sentence != hang["sentence"])
        ):
            shown = os.path.relpath(self._folder.path)
            say(f"the job ended with exit code {code}. {explained.sentence} More: ddprof hang {shown}")

    def _write(self, content: dict[str, Any], missing: str) -> bool:
        def write() -> bool:
            write_json(self._folder.manifest, content)
            return True

        return chore(self._folder.manifest.name, missing, write) or False

    def _last_line(self, summary: RunSummary, written: bool) -> str:
        if not summary.ranks:
            reason = obstacle(self._command_line)
            if not written:
                reason = f"{self._folder.path} is gone, full or read-only"
            if reason is not None:
                return f"no capture: {reason}"
        planned = self._options.skip if self._options.mode == "trace" else None
        return manifest.last_line(self._folder.path, summary, planned)


def _make_folder(
    options: RunOptions, command_line: Sequence[str], now_s: float, job: SharedJob | None
) -> run_folder.RunFolder:
    if options.run_dir is not None:
        return run_folder.join(options.run_dir, options.shared)
    parent = None if is_url(options.out) else Path(options.out)
    if job is not None and not job.is_unique and parent is None:
        job = None  # no folder that nodes share says whether a job of that name has ended: the analysis joins them
    folder = run_folder.create(parent, options.name or _name_of(command_line), now_s, job, options.shared)
    if folder.fallback_reason:
        say(f"{folder.fallback_reason}: writing to {folder.path}")
    return folder


def _config(path: Path, options: RunOptions) -> CaptureConfig:
    return CaptureConfig(
        run_dir=str(path),
        skip_steps=options.skip,
        window_steps=options.steps,
        every_steps=options.every,
        ranks=options.ranks,
        mode=options.mode,
        stacks=options.stacks,
        apply=options.to_apply.packed if options.to_apply else "",
        end_after=options.end_after,
    )


def _name_of(command_line: Sequence[str]) -> str:
    """The script's name without its suffix, else the program's."""
    scripts = [Path(word).stem for word in command_line if word.endswith(".py")]
    return scripts[0] if scripts else Path(command_line[0]).name
