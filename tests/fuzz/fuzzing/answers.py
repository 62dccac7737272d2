"""One call of the command line in this process, watched: what it said, what it cost, where it failed: a place
in ddprof is its own innermost frame."""

import contextlib
import io
import os
import re
import resource
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import ddprof
from fuzzing.seeds import REPOSITORY

HEADROOM_BYTES = 1_600 << 20  # of address space beyond what the process has: then MemoryError says where
NOBODY = 65534
_PAGE_BYTES = 4096
_CODE = f"{Path(ddprof.__file__).resolve().parents[1]}/"  # the checkout whose ddprof runs
_OURS = ("ddprof", "analyzers", "dashboard")
_FAULT_LINE = re.compile(r'File "(?P<file>[^"]+)", line \d+ in (?P<function>\S+)')
_vanishing: dict[str, int] = {}  # path -> how many more times it can be opened


@dataclass(frozen=True)
class Answer:
    """Outcome of a call. `error`: (place, what) of an exception that was nobody's to see; times in seconds."""

    code: int
    stdout: str
    stderr: str
    error: tuple[str, str] | None
    warned: tuple[tuple[str, str], ...]
    cpu_s: float
    peak_bytes: int


def watch_opens(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: deletes a vanishing file just before it is opened."""
    if event != "open" or not _vanishing or not isinstance(arguments[0], str):
        return
    path = os.path.abspath(arguments[0])
    if path in _vanishing:
        _vanishing[path] -= 1
        if _vanishing[path] <= 0:
            del _vanishing[path]
            with contextlib.suppress(OSError):
                os.unlink(path)


@dataclass(frozen=True)
class Setting:
    """Surroundings of a call: `vanishing` counts by path the openings at which a file is deleted; `as_nobody`: rights
    bind, also where the harness runs as root."""

    vanishing: Mapping[str, int] = field(default_factory=dict)
    is_native: bool = True
    as_nobody: bool = False


def ask(arguments: Sequence[str], folder: Path, setting: Setting) -> Answer:
    """Call `ddprof ARGUMENTS` as the program would, from `folder`, with its own homes below it. It may never return."""
    from ddprof.cli.main import main  # a process that only hands out cases does without ddprof

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    warned: list[tuple[str, str]] = []
    error, code = None, 0
    _vanishing.update(setting.vanishing)
    before_cpu = _cpu_s()
    with _limits(), _environment(arguments, folder, setting), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, category, *_: warned.append(
            (_place_of_frame(sys._getframe(1)), f"{category.__name__}: {message}")
        )
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as done:
                code = done.code if isinstance(done.code, int) else 1
            except BaseException as caught:
                error = (place_of_error(caught.__traceback__), f"{type(caught).__name__}: {caught}"[:300])
        cpu_s, peak = _cpu_s() - before_cpu, peak_bytes()
    _vanishing.clear()
    return Answer(code, _text(out), _text(err), error, tuple(warned), cpu_s, peak)


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.buffer.read().decode("utf-8", "surrogateescape")


def _cpu_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in used)


@contextlib.contextmanager
def _environment(arguments: Sequence[str], folder: Path, setting: Setting) -> Iterator[None]:
    """The process as the program finds it, and as it was afterwards."""
    kept = dict(os.environ), sys.argv, sys.excepthook, tempfile.tempdir, Path.cwd()
    home = folder / "home"
    for part in (home, folder / "tmp", folder / "out", folder / "run"):
        part.mkdir(exist_ok=True)
    os.environ.update(DDPROF_DATA_HOME=str(home), XDG_CACHE_HOME=str(folder / "cache"), HOME=str(home))
    os.environ.update(DDPROF_NATIVE="1" if setting.is_native else "0", NO_COLOR="1", COLUMNS="120")
    os.environ.pop("DDPROF_DEBUG", None)
    sys.argv = ["ddprof", *arguments]
    tempfile.tempdir = str(folder / "tmp")
    os.chdir(folder)
    can_import = all(part.stat().st_mode & 0o5 == 0o5 for part in (REPOSITORY, *REPOSITORY.parents))  # so can nobody
    drops_rights = setting.as_nobody and os.geteuid() == 0 and can_import
    if drops_rights:
        for path in (folder, *folder.rglob("*")):  # folders are handed over; files are readable to all
            if path == folder or (path.is_dir() and not path.is_symlink() and path.stat().st_mode & 0o700):
                os.chown(path, NOBODY, -1)
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if drops_rights:
            os.seteuid(0)
        os.environ.clear()
        os.environ.update(kept[0])
        sys.argv, sys.excepthook, tempfile.tempdir = kept[1:4]
        os.chdir(kept[4])


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """A bound on memory, and a fresh measure of its peak."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    address_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (address_bytes + HEADROOM_BYTES, hard))
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def peak_bytes() -> int:
    """The most memory this process has had since the peak began anew."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10


def place_of_error(trace: TracebackType | None) -> str:
    """`file:function` of the innermost frame of ours."""
    return _innermost((frame.filename, frame.name) for frame in traceback.extract_tb(trace))


def _place_of_frame(frame: FrameType | None) -> str:
    """Place of the frame that runs now."""
    frames = reversed([one for one, _ in traceback.walk_stack(frame)]) if frame else ()
    return _innermost((one.f_code.co_filename, one.f_code.co_name) for one in frames)


def place_of_dump(text: str) -> str:
    """Place in a dump of `faulthandler`, innermost first; of its last thread, which is the main one."""
    main = text.rsplit("Thread 0x", 1)[-1]
    return _innermost((found["file"], found["function"]) for found in reversed([*_FAULT_LINE.finditer(main)]))


def _innermost(frames: Iterable[tuple[str, str]]) -> str:
    place = "outside ddprof"
    for file, function in frames:
        parts = file.removeprefix(_CODE).split("/")
        if file.startswith(_CODE) and parts[0] in _OURS and not function.startswith("<module"):
            place = f"{'/'.join(parts)}:{function}"
    return place
