"""The `ddprof` command group, loaded lazily, with the errors, exit codes and pipes of every command.

Only click and the standard library are imported here; a command's own module is imported when it is called.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import click

from ddprof._version import __version__
from ddprof.cli.lazy_group import LazyGroup
from ddprof.errors import DdprofError, UsageError
from ddprof.slice import Slice, all_slices, own_slices
from ddprof.untrusted.plain_text import clean

# A path, or an archive member's, of any length: its ends are printed, a whole name of a file (255 bytes) at the last.
_LONG_NAME, _ENDS = re.compile(r"([^\s!]{64})[^\s!]{64,}([^\s!]{255})"), r"\1...\2"

# The core's: group of `--help` -> name -> (module, one line of help). The module holds the click command as `command`.
CORE: dict[str, dict[str, tuple[str, str]]] = {
    "Run and read": {
        "run": ("ddprof.cli.run", "Run a training job unchanged and trace every rank."),
        "analyze": ("ddprof.cli.analyze", "Say why a traced job is slow, what to change, what it saves."),
        "explain": ("ddprof.cli.explain", "Explain a finding: what it detects and how to fix it."),
        "serve": ("ddprof.cli.serve", "Open the dashboard: verdict, timeline, what-if."),
        "demo": ("ddprof.cli.demo", "Analyze a shipped sample trace."),
    },
    "Fix and prove": {
        "whatif": ("ddprof.cli.whatif", "Predict the step with settings changed, by replay."),
    },
    "Watch and debug": {},  # of slices alone
    "Share and automate": {
        "report": ("ddprof.cli.report", "Write one self-contained HTML or Markdown file of a run."),
        "export": ("ddprof.cli.export", "Write a Perfetto trace, or tables as parquet or CSV."),
        "completion": ("ddprof.cli.completion", "Print the shell completion script."),
    },
}


def commands(slices: Iterable[Slice]) -> dict[str, dict[str, tuple[str, str]]]:
    """The commands of the core and of slices, by group of `--help`."""
    groups = {group: list(rows.items()) for group, rows in CORE.items()}
    for part in slices:
        for name, (module, line, group, after, attribute) in part.commands.items():
            rows = groups.setdefault(group, [])
            names = [command for command, _ in rows]
            if name not in names:
                rows.insert(
                    names.index(after) + 1 if after in names else len(rows), (name, (f"{module}:{attribute}", line))
                )
    return {group: dict(rows) for group, rows in groups.items()}


EPILOG = """\b
Exit codes: `ddprof run` returns the command's own (128 + n on signal n). Others:
  0  done
  1  internal error
  2  usage
  3  a gate failed (--fail-on, --max-regression)
  4  no usable input or, under --strict, incomplete input
Results are written to stdout, everything else to stderr. NO_COLOR is honoured;
DDPROF_DEBUG=1 shows the traceback of an internal error."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@click.group(
    cls=LazyGroup,
    listed=commands(own_slices()),
    all_listed=lambda: commands(all_slices()),  # those of other packages too: to look for them takes 40 ms
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="ddprof")
def cli() -> None:
    """Find out why distributed PyTorch training is slow, what to change, and what it will save.

    \b
    ddprof run -- torchrun --nproc-per-node=8 train.py
    ddprof analyze ddprof-runs/latest
    ddprof tune -- torchrun --nproc-per-node=8 train.py
    """


def main() -> None:
    """Run the `ddprof` program and exit with its documented code."""
    sys.excepthook = _internal_error
    for stream in (sys.stdout, sys.stderr):
        _never_fail_to_encode(stream)
    code = guarded(lambda: cli.main(prog_name="ddprof", standalone_mode=False))
    sys.exit(_flushed(code))


def guarded(call: Callable[[], Any]) -> int:
    """Run the command; print an error meant for the user as one line on stderr and return its exit code."""
    stdout = sys.stdout
    try:
        result = call()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("ddprof: interrupted", err=True)
        return 130
    except DdprofError as error:
        click.echo(f"ddprof: {_LONG_NAME.sub(_ENDS, str(error))}", err=True)
        return error.exit_code
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:  # else of stdout, which alone is written so
            raise
        click.echo(f"ddprof: stdout: not written: {error.strerror}", err=True)
        return UsageError.exit_code
    except SystemExit:
        if sys.stdout is stdout:
            raise
        return _reader_left()  # click met it, puts a wrapper in place of the stream, and would exit with 1
    return result if isinstance(result, int) else 0


def _flushed(code: int) -> int:
    """Flush stdout now, while a reader that has gone away can still be handled; return the exit code."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_left()
    except OSError:
        _reader_left()  # of a full disk, which `guarded` has told
    return code


def _reader_left() -> int:
    """Redirect stdout to the void after `ddprof ... | head` closed it, so that the last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _never_fail_to_encode(stream: Any) -> None:
    """Make a stream replace characters that its terminal cannot show instead of raising UnicodeEncodeError."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def _internal_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print one line on a defect of ddprof itself (Python then exits with 1), and the traceback on request."""
    if os.environ.get("DDPROF_DEBUG"):
        sys.__excepthook__(kind, error, trace)
        return
    text = clean(" ".join(str(error).split()))
    hint = "DDPROF_DEBUG=1 shows where; please report it"
    print(f"ddprof: internal error: {kind.__name__}: {text} ({hint})", file=sys.stderr)


if __name__ == "__main__":
    main()
