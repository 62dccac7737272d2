"""End of a log after its last iteration: a traceback, full memory, a call of NCCL that timed out, a cancelled job."""

from __future__ import annotations

import re
from collections import defaultdict

from ddprof.slices.training_logs.reading.lines import LogLine
from ddprof.units import format_ranks

TRACEBACK = "Traceback (most recent call last)"
WATCHDOGS = ("Watchdog caught", "Timeout at NCCL work: ")
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
# Of which the cancelled step is only what follows
_EXITED = re.compile(r"srun: error: (?P<host>\S{1,100}): (?P<tasks>tasks? [\d,-]{1,200}): (?P<how>[A-Z][\w ()]{1,80})")
# "[missing ranks: 1]", "[ready ranks: 5, 1, 4]", and since Horovod 0.19 "Missing ranks:" above a line for each rank
_STALLED = re.compile(r"\[(?P<what>missing|ready) ranks: (?P<ranks>\d[\d, ]{0,4000})\]|^(?:Missing|Stalled) ranks:\s*$")
_STALL, _OF_RANK = "Missing ranks", re.compile(r"(?:^|>:)(\d{1,7}): ?\[")
_SIGNALS = {"1": "SIGHUP", "2": "SIGINT", "3": "SIGQUIT", "9": "SIGKILL", "15": "SIGTERM"}
_ASIDE, _USAGE = "Error executing job with overrides", ".py: error: "
_KILLS = "Killed|Terminated|Segmentation fault|Bus error|Aborted"
_OF_SHELL = r"\S{1,200}: line \d{1,6}: {1,4}\d{1,8} |\[\d{1,3}\][+-]? {1,4}"
_WRONG = "wrong results: nccl-tests found {} values out of bounds"
_OOM_KILL = "too little host memory: Slurm killed a task (oom-kill)"
# What stands in the line; its words that name the end; and that, where they are a part of it
_ENDS = tuple(
    (words.split("|"), re.compile(line), says[0] if says else "{}")
    for words, line, *says in (
        ("eceived SIG", r"(?<=eceived )(SIG(?:TERM|INT))\b"),  # Lightning, DeepSpeed
        (" death signal, ", r"(?<=Received )(?:Signals\.)?(SIG[A-Z]{1,8}|1|2|3|15) death signal"),  # torchrun
        (" got signal: ", r" got signal: (1|2|3|9|15)$"),
        ("Detected KeyboardInterrupt", r"Detected (KeyboardInterrupt)"),
        (_USAGE, r"([\w-]{1,80}\.py: error: .*)"),  # a script of settings that it does not know
        ("Exited with exit code ", r"^Exited with (exit code \d{1,3})\.$"),  # LSF
        ("detected by the operating system", r"^(FatalError: `[\w ]{1,40}` is detected by the operating system)"),
        ("watchdog got stuck for ", r"\b(Rank \d{1,7})\] (ProcessGroupNCCL's watchdog got stuck for \d+ seconds)"),
        (" by GPU node-", r"((?:HW Exception|Memory access fault) by GPU node-.*)"),  # a device of AMD
        (" execute failed, ", r"(\w{1,80} execute failed, reason=\[[^\]]{1,80}\])"),  # an NPU
        (_ASIDE, f"({_ASIDE})"),  # Hydra, above the traceback or in a file without it
        (_KILLS, rf"^(?:{_OF_SHELL})?((?:{_KILLS})(?: \(core dumped\))?)(?: {{2,}}.*| {{0,2}})$", "a signal: {}"),
        (" oom", r"[Dd]etected \d{1,6} oom[_-]kill event", _OOM_KILL),
        ("# Out of bounds", r"# Out of bounds values : (\d{1,12}) FAILED", _WRONG),  # after which nccl-tests exits
    )
)
_THREAD = "Exception in thread "
WORDS = (
    *(word for words, *_ in _ENDS for word in words),
    *(_THREAD, TRACEBACK, *WATCHDOGS, " CANCELLED AT ", "srun: error: ", "ut of memory"),
    *("issing ranks:", "talled ranks:", "[ready ranks:"),
)
_NAN = re.compile(r"(?i)(?:loss|grad[ _]?norm)\W{0,3}nan\b")
_MOST_LINES = 2000  # of one traceback: ranks that share a file write theirs between its lines
_MOST_CHARACTERS = 240
_MOST_CALLS = 3  # that timed out
# torchrun's own, after those of its workers: it says that one failed, and not why.
# "RuntimeError: Caught KeyError in DataLoader worker": the original comes after it, as after Ray's
_ORIGINAL = re.compile(r": Caught |\bRayTaskError\(")
_LAUNCHER = ("ChildFailedError", "SignalException", "CalledProcessError", "ProcessRaisedException")


def _end_of(text: str) -> str | None:
    """The end that a line names by itself; None where it names none."""
    for words, pattern, says in _ENDS:
        if any(word in text for word in words) and (match := pattern.search(text)) is not None:
            return says.format(": ".join(_SIGNALS.get(said, said) for said in match.groups()))
    return None


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
        text = line.text
        if text.startswith(_THREAD):
            self._in_thread.add(line.who)
        elif TRACEBACK in text:
            self.open[line.who] = 0, len(text) - len(text.lstrip(" "))
        elif any(word in text for word in WATCHDOGS) and (late := _TIMED_OUT.search(line.who + text)) is not None:
            rank = int(late["rank"] or late["of_group"])
            self._timed_out[late["op"] or ""].append((rank, int(late["ms"] or 0), late["number"] or late["work"] or ""))
        elif " ranks:" in text and (stall := _STALLED.search(text)) is not None:
            if stall["what"]:
                self._stall(stall["what"] == "missing", set(map(int, re.findall(r"\d+", stall["ranks"]))))
            else:
                self.open[_STALL] = 0, 0
        elif self.open.pop(_STALL, None) and (lacks := _OF_RANK.search(line.who + text)) is not None:
            # "1: [Allreduce_103, ...", of which it has none
            self.open[_STALL], self._lack = (0, 0), {*self._lack, int(lacks[1])}
            self._error = "" if self._error == self._stalled else self._error
            self._stall(True, self._lack)
            self._stalled = self._error
        elif " CANCELLED AT " in text and (end := _CANCELLED.search(text)) is not None:
            (job, before), exited = self._cancelled, self._exited
            if end["job"] != job and self._named == before:
                self.went_on()  # what was named is of a job before
            self._name(exited or end[0])
            self._cancelled, self._exited = (end["job"], self._named), ""
        elif "srun: error: " in text and (task := _EXITED.search(text)) is not None:
            self._exited = self._exited or f"{task['tasks']} of {task['host']}: {task['how'].strip()}"
        elif (said := _end_of(text)) is not None:
            if _USAGE in self._error and _USAGE in said:  # with which a program ends: this is the next one
                self._error = ""
            self._name(said, said == _ASIDE)
        elif line.who in self.open:
            self._follow(line)
        elif "ut of memory" in text and "running out" not in text and not self._named:  # which is advice
            match = _OUT_OF_MEMORY.search(text)
            self._name(match[0] if match else text)

    def _stall(self, is_missing: bool, ranks: set[int]) -> None:
        """Name a stall that Horovod states: the ranks that did not submit what others wait for, or those that did."""
        who, have = format_ranks(sorted(ranks)), "has" if len(ranks) == 1 else "have"
        missing = f"{who} {have} not submitted what the others wait for"
        self._name(f"a stall of Horovod: {missing if is_missing else f'only {who} submitted what they wait for'}")

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
