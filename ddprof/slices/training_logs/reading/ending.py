"""End of a log: a traceback or out of memory, and the last iteration before."""

from __future__ import annotations

import re

from ddprof.slices.training_logs.reading.lines import LogLine

TRACEBACK = "Traceback (most recent call last)"
_ERROR = re.compile(r"^(?P<error>[A-Za-z_][\w.]{2,80}(?:Error|Exception|Interrupt|Exit|Failure|Warning)?)(?::\s?|$)")
_OUT_OF_MEMORY = re.compile(
    r"(?:\w+\.)*OutOfMemoryError: .*|(?:CUDA|HIP|XPU|NPU)?[ \w]{0,20}out of memory.*", re.IGNORECASE
)
_MOST_LINES = 2000  # of one traceback: ranks that share a file write theirs between its lines
_MOST_CHARACTERS = 240
# torchrun's own, after those of its workers: it says that one failed, and not why.
_LAUNCHER = ("ChildFailedError", "SignalException", "CalledProcessError")


class LastError:
    """Finds the last error of a log, and drops it when an iteration follows: the job went on, or started again."""

    def __init__(self) -> None:
        self.error = ""
        self._open: dict[str, tuple[int, int]] = {}  # who -> lines since its traceback began, spaces before that

    @property
    def reads_on(self) -> bool:
        """True where the next line may name an error."""
        return bool(self._open)

    def take(self, line: LogLine) -> None:
        """Read the next line."""
        if TRACEBACK in line.text:
            self._open[line.who] = 0, len(line.text) - len(line.text.lstrip(" "))
        elif line.who in self._open:
            self._follow(line)
        elif "ut of memory" in line.text and not self.error:
            match = _OUT_OF_MEMORY.search(line.text)
            self._name(match[0] if match else line.text)

    def iteration(self) -> None:
        """Note that an iteration was logged."""
        self.error = ""
        self._open.clear()

    def _follow(self, line: LogLine) -> None:
        lines, spaces = self._open[line.who]
        # "[rank1]: RuntimeError: ...", and torchrun's report of what its workers said is indented as a whole.
        text = line.text.removeprefix(" " * (spaces or bool(line.who)))
        self._open[line.who] = lines + 1, spaces
        if text[:1].isspace() or not text:
            if lines >= _MOST_LINES:
                del self._open[line.who]
            return
        del self._open[line.who]
        if _ERROR.match(text) is not None:
            self._name(text)

    def _name(self, error: str) -> None:
        """Name the cause: the first error after the last iteration, which causes those after it."""
        if not self.error and not any(name in error.split(":")[0] for name in _LAUNCHER):
            self.error = " ".join(error.split())[:_MOST_CHARACTERS].rstrip(" .:")
