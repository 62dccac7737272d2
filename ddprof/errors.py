"""Errors meant for the user: one line on stderr, one exit code, never a traceback."""

from __future__ import annotations

from ddprof.untrusted.plain_text import clean


class DdprofError(Exception):
    """A failure the user can act on. `exit_code` is what the command returns (see `ddprof --help`)."""

    exit_code = 1

    def __str__(self) -> str:
        """The message in one line that any terminal takes, whatever file names it contains."""
        return clean(super().__str__())


class UsageError(DdprofError):
    """The command was called with options that are invalid or contradict each other."""

    exit_code = 2


class GateFailed(DdprofError):
    """A CI gate (`--fail-on`, `--max-regression`) was violated."""

    exit_code = 3


class NoUsableInput(DdprofError):
    """None of the input can be analyzed or, under `--strict`, it is incomplete."""

    exit_code = 4
