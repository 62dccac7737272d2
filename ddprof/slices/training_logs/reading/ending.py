"""End of a log after its last iteration: a traceback, full memory, a call of NCCL that timed out, a cancelled job."""

from __future__ import annotations

import re
from collections import defaultdict

from ddprof.slices.training_logs.reading.lines import (
    OF_ERRORS,
    OF_KILLS,
    OF_STALLS,
    OF_STOPS,
    TRACEBACK,
    WATCHDOGS,
    LogLine,
)
from ddprof.units import format_ranks

_ERROR = re.compile(r"^[A-Za-z_][\w.]{2,80}(?:(?:\(\w+\))?:(?:\s|$)|(?<=Error|ption|rrupt)$)")
_OUT_OF_MEMORY = re.compile(
    r"(?:\w+\.)*OutOfMemoryError: .*|(?:CUDA|HIP|XPU|NPU)?[ \w]{0,20}out of memory.*", re.IGNORECASE
)
# "[rank13]:[E218 04:54:22 ...] [Rank 1] Watchdog ...": the number in its group stands second
_TIMED_OUT = re.compile(
    r"(?:\[rank(?P<rank>\d{1,7})\].{0,200}?)?\bRank (?P<of_group>\d{1,7})\] "
    r"(?:Timeout at NCCL work: (?P<work>\d{1,18})|Watchdog caught)(?: collective operation "
    r"timeout: Work\w{1,40}\((?:SeqNum=(?P<number>\d{1,18}), )?OpType=(?P<op>\w{1,40}).*?"
    r"ran for (?P<ms>\d{1,12}) milliseconds|)"
)
_CANCELLED = re.compile(
    r"(?:JOB|STEP) (?P<job>\d{1,12})\S{0,20} ON \S{1,100} CANCELLED AT [^*\s]+(?: DUE TO [A-Z ]+[A-Z])?"
)
# Of which the cancelled step is only what follows; and the check of nccl-tests, after which it exits so.
_EXITED = re.compile(r"srun: error: (?P<host>\S{1,100}): (?P<tasks>tasks? [\d,-]{1,200}): (?P<how>[A-Z][\w ()]{1,80})")
_WRONG = re.compile(r"# Out of bounds values : (?P<count>\d{1,12}) FAILED")
# What Lightning, torchrun and Paddle say of a signal, a script of settings it does not know, and LSF of the job
_STOPPED = re.compile(
    r"(?<=eceived )SIG(?:TERM|INT)\b|(?<=Received )(?:Signals\.)?(?P<signal>SIG[A-Z]{1,8}|1|2|3|15) death signal"
    r"| got signal: (?P<number>1|2|3|9|15)$|(?<=Detected )KeyboardInterrupt|[\w-]{1,80}\.py: error: .*"
    r"|^Exited with (?P<code>exit code \d{1,3})(?=\.$)|^FatalError: `[\w ]{1,40}` is detected by the operating system"
    # A hang as NCCL's watchdog sees it; what a device of AMD does wrong; a call of an NPU
    r"|\bRank \d{1,7}\] ProcessGroupNCCL's watchdog got stuck for \d{1,9} seconds"
    # Hydra's own words, above the traceback or in a file without it
    r"|(?P<aside>Error executing job with overrides)"
    r"|(?:HW Exception|Memory access fault) by GPU node-.*|\w{1,80} execute failed, reason=\[[^\]]{1,80}\]"
)
# "[missing ranks: 1]", "[ready ranks: 5, 1, 4]", and since Horovod 0.19 "Missing ranks:" above a line for each rank
_STALLED = re.compile(
    r"\[(?:missing ranks: (?P<missing>\d[\d, ]{0,4000})|ready ranks: (?P<ready>\d[\d, ]{0,4000}))\]"
    r"|(?P<above>^(?:Missing|Stalled) ranks:\s*$)"
)
_STALL, _OF_RANK = "Missing ranks", re.compile(r"(?:^|>:)(\d{1,7}): ?\[")
_SIGNALS = {"1": "SIGHUP", "2": "SIGINT", "3": "SIGQUIT", "9": "SIGKILL", "15": "SIGTERM"}
# The last words of a shell on a program, and Slurm's
_KILLED = re.compile(
    r"^(?:\S{1,200}: line \d{1,6}: {1,4}\d{1,8} |\[\d{1,3}\][+-]? {1,4})?(?P<how>(?:Killed|Terminated"
    r"|Segmentation fault|Bus error|Aborted)(?: \(core dumped\))?)(?: {2,}.*| {0,2})$"
    r"|(?P<oom>[Dd]etected \d{1,6} oom[_-]kill event)"
)
WORDS = (*OF_STALLS, *OF_ERRORS, "# Out of bounds", "ut of memory", *OF_STOPS, *OF_KILLS)
_NAN = re.compile(r"(?i)(?:loss|grad[ _]?norm)\W{0,3}nan\b")
_THREAD, _USAGE = "Exception in thread ", ".py: error: "
_MOST_LINES = 2000  # of one traceback: ranks that share a file write theirs between its lines
_MOST_CHARACTERS = 240
_MOST_CALLS = 3  # that timed out
# torchrun's own, after those of its workers: it says that one failed, and not why.
# "RuntimeError: Caught KeyError in DataLoader worker": the original comes after it, as after Ray's
_ORIGINAL = re.compile(r": Caught |\bRayTaskError\(")
_LAUNCHER = ("ChildFailedError", "SignalException", "CalledProcessError", "ProcessRaisedException")


def is_nan(text: str) -> bool:
    """True for a line whose loss, or gradients' norm, is not a number."""
    return "nan" in text.lower() and _NAN.search(text) is not None


class LastError:
    """Finds the last error of a log, and drops it when an iteration follows: the job went on, or started again."""

    def __init__(self) -> None:
        self._error = ""
        # operation -> (rank, ms, call) of it
        self._timed_out: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        self.nan_lines = 0  # of iterations, the last ones, whose loss, or gradients' norm, is not a number
        self._exited = ""  # the first task that srun saw fail
        self._cancelled = "", ""  # the last cancelled job, and what was named until then
        self.open: dict[str, tuple[int, int]] = {}  # who -> lines since its traceback began, spaces before that
        self._in_thread: set[str] = set()  # who -> its traceback is of a thread beside the main one
        self._lack: set[int] = set()  # ranks that a stall of Horovod names, a line for each
        self._stalled = ""
        self._is_aside = False  # what was named, which the end of the main thread causes

    @property
    def error(self) -> str:
        """The cause, "" without one."""
        return self._named or self._exited

    @property
    def _named(self) -> str:
        if self._error or not self._timed_out:
            return self._error
        calls = []
        for op, late in self._timed_out.items():
            ranks = format_ranks(sorted({rank for rank, _, _ in late}))
            numbers = sorted({int(number) for _, _, number in late if number})
            # Without the operation its line is cut.
            waited = f" waited {max(ms for _, ms, _ in late) / 1e3:.0f} s in {op}" if op else " waited"
            told = f"calls {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"call {(numbers or [0])[0]}"
            calls.append(f"{ranks}{waited}" + f" ({told})" * bool(numbers))
        return f"a timeout of NCCL: {'; '.join(calls[:_MOST_CALLS])}"

    @property
    def reads_on(self) -> bool:
        """True where the next line may name an error."""
        return bool(self.open)

    def take(self, line: LogLine) -> None:
        """Read the next line."""
        if line.text.startswith(_THREAD):
            self._in_thread.add(line.who)
        elif TRACEBACK in line.text:
            self.open[line.who] = 0, len(line.text) - len(line.text.lstrip(" "))
        elif (
            any(word in line.text for word in WATCHDOGS)
            and (late := _TIMED_OUT.search(line.who + line.text)) is not None
        ):
            rank = int(late["rank"] or late["of_group"])
            self._timed_out[late["op"] or ""].append((rank, int(late["ms"] or 0), late["number"] or late["work"] or ""))
        elif " ranks:" in line.text and (stall := _STALLED.search(line.text)) is not None:
            ranks = sorted({int(rank) for rank in re.findall(r"\d+", stall["missing"] or stall["ready"] or "")})
            if stall["above"]:
                self.open[_STALL] = 0, 0
            else:
                self._stall(bool(stall["missing"]), ranks)
        elif self.open.pop(_STALL, None) and (lacks := _OF_RANK.search(line.who + line.text)) is not None:
            # "1: [Allreduce_103, ...", of which it has none
            self.open[_STALL], self._lack = (0, 0), {*self._lack, int(lacks[1])}
            self._error = "" if self._error == self._stalled else self._error
            self._stall(True, sorted(self._lack))
            self._stalled = self._error
        elif " CANCELLED AT " in line.text and (end := _CANCELLED.search(line.text)) is not None:
            (job, before), exited = self._cancelled, self._exited
            if end["job"] != job and self._named == before:
                self.went_on()  # what was named is of a job before
            self._name(exited or end[0])
            self._cancelled, self._exited = (end["job"], self._named), ""
        elif "srun: error: " in line.text and (task := _EXITED.search(line.text)) is not None:
            self._exited = self._exited or f"{task['tasks']} of {task['host']}: {task['how'].strip()}"
        elif "# Out of bounds" in line.text and (wrong := _WRONG.search(line.text)) is not None:
            self._name(f"wrong results: nccl-tests found {wrong['count']} values out of bounds")
        elif any(stop in line.text for stop in OF_STOPS) and (stop := _STOPPED.search(line.text)) is not None:
            signal = stop["signal"] or stop["number"] or ""
            if _USAGE in self._error and _USAGE in stop[0]:  # with which a program ends: this is the next one
                self._error = ""
            self._name(
                _SIGNALS.get(signal, signal or stop["code"] or stop[0].replace("] ", ": ", 1)), bool(stop["aside"])
            )
        elif any(kill in line.text for kill in OF_KILLS) and (kill := _KILLED.search(line.text)) is not None:
            self._name(
                f"a signal: {kill['how']}" if kill["how"] else "too little host memory: Slurm killed a task (oom-kill)"
            )
        elif line.who in self.open:
            self._follow(line)
        elif "ut of memory" in line.text and "running out" not in line.text and not self._named:  # which is advice
            match = _OUT_OF_MEMORY.search(line.text)
            self._name(match[0] if match else line.text)

    def _stall(self, is_missing: bool, ranks: list[int]) -> None:
        """Name a stall that Horovod states: the ranks that did not submit what others wait for, or those that did."""
        who = format_ranks(ranks)
        did = "has not submitted" if len(ranks) == 1 else "have not submitted"
        self._name(
            f"a stall of Horovod: {who} {did} what the others wait for"
            if is_missing
            else f"a stall of Horovod: only {who} submitted what they wait for"
        )

    def iteration(self, is_nan: bool) -> None:
        """Note that an iteration was logged."""
        self.nan_lines = self.nan_lines + 1 if is_nan else 0
        self.went_on()

    def went_on(self) -> None:
        """Note that the job did not end there."""
        self._error = self._exited = ""
        self._timed_out.clear()
        self.open.clear()

    def _follow(self, line: LogLine) -> None:
        lines, spaces = self.open[line.who]
        # "[rank1]: RuntimeError: ...", and torchrun's report of what its workers said is indented as a whole.
        text = line.text.removeprefix(" " * (spaces or bool(line.who)))
        self.open[line.who] = lines + 1, spaces
        if text[:1].isspace() or not text:
            if lines >= _MOST_LINES:
                del self.open[line.who]
            return
        if "RayTaskError(" not in text:
            del self.open[line.who]
        is_aside = line.who in self._in_thread
        self._in_thread.discard(line.who)
        if _ERROR.match(text) is not None:
            self._name(text, is_aside)

    def _name(self, error: str, is_aside: bool = False) -> None:
        """Name the cause: the first error after the last iteration, which causes those after it."""
        is_first = not self._named or _ORIGINAL.search(self._error) or (self._is_aside and not is_aside)
        if is_first and not any(name in error.split(":")[0] for name in _LAUNCHER):
            self._is_aside = is_aside
            self._error = " ".join(error.split())[:_MOST_CHARACTERS].rstrip(" .:")
