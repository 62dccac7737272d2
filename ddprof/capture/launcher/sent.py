"""Uploads of a run while it goes on: its folder to a store, its figures to experiment trackers.

Ranks only write files, on local disk. The launcher's process sends them, file by file, on a thread of its own, the rest
when the job has ended: no step waits for a store. A process beside the job (slices/trackers/follow.py) writes to
trackers.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ddprof.capture.files.layout import CALLS_SUFFIX, CONTROL, MANIFEST, RING_SUFFIX, host_label
from ddprof.capture.guard import Guard, say
from ddprof.capture.launcher.chores import stated_s, wait_or_kill
from ddprof.untrusted.stores import driver_options

LOOK_S = 10.0  # a file of the same size and time at two looks has been written; one that grows later is sent again
GIVE_UP = 3  # failures one after another, each of which the driver has repeated: the store does not answer
_GROWING = (".tmp", RING_SUFFIX, CALLS_SUFFIX, CONTROL)  # sent when the job has ended: rings change without a new time
Stamp = tuple[int, int]  # size in bytes, time of the last change
_END_S = 300.0  # for the analysis and the last writes once the job has ended
_SETTLE_S = 5.0


def is_url(out: str) -> bool:
    """True where `--out` is an fsspec URL (s3://, gs://, memory://) rather than a folder."""
    return "://" in out


@dataclass(frozen=True)
class Uploaded:
    """Result of an upload: address in the store, number of files sent, and files that failed with the reason."""

    address: str
    sent: int
    kept: tuple[str, ...] = ()
    reason: str = ""

    def line(self, folder: Path) -> str:
        """The result as a line for the user."""
        if not self.kept:
            return f"uploaded to {self.address}"
        which = self.kept[0] if len(self.kept) == 1 else f"{len(self.kept)} of {len(self.kept) + self.sent} files"
        return f"{which} could not be uploaded to {self.address} ({self.reason}): kept in {folder}"


class RunUpload:
    """Uploads the files of a run folder to a store below `url`."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = f"{url.rstrip('/')}/{folder.name}"
        self._seen: dict[str, Stamp] = {}
        self._sent: dict[str, Stamp] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._said = False

    def start(self) -> None:
        """Begin to send finished files; once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ddprof-upload", daemon=True)
            self._thread.start()

    def end(self) -> Uploaded:
        """Send the remaining files after the job has ended."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        left, reason, failures = {}, "", 0
        for name, stamp in _files(self._folder).items():
            if self._sent.get(name) == stamp:
                continue
            failed = "the store does not answer" if failures >= GIVE_UP else self._send(name, stamp)
            failures = failures + 1 if failed else 0
            if failed:
                left[name] = stamp
                reason = reason or failed
        return Uploaded(self._url, len(self._sent.keys() - left.keys()), tuple(left), reason)

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            files = _files(self._folder)
            settled = [name for name, stamp in files.items() if self._seen.get(name) == stamp]
            self._seen = files
            self._forget(files)
            for name in settled:
                if self._ended.is_set():
                    return
                if self._sent.get(name) != files[name] and not name.endswith(_GROWING):
                    failed = self._send(name, files[name])
                    if failed:
                        self._say_once(failed)
                        break  # until the next look

    def _send(self, name: str, stamp: Stamp) -> str:
        """The reason why a file could not be sent; "" where it was, or no longer exists."""
        guard = Guard()
        sent = guard.attempt("upload", lambda: self._store.put(self._folder / name))
        if sent:
            self._sent[name] = stamp
        if sent or not os.path.lexists(self._folder / name):
            return ""
        return guard.faults[0].removeprefix("upload: ") if guard.faults else "no reason given"

    def _forget(self, files: dict[str, Stamp]) -> None:
        """Remove stored files that are gone from the folder, such as a trace that has been compressed since."""
        for name in [name for name in self._sent if name not in files]:
            if Guard().attempt("upload", lambda name=name: self._store.remove(name)):  # type: ignore[misc]
                del self._sent[name]

    @cached_property
    def _store(self) -> _Store:
        return _Store(self._url)

    def _say_once(self, reason: str) -> None:
        if not self._said:
            self._said = True
            say(f"{self._url}: no upload so far ({reason}); tried again until the job has ended")


class _Store:
    """A folder of a store. Its methods raise OSError or whatever the store's driver raises."""

    def __init__(self, url: str) -> None:
        import fsspec  # heavy, and only the launching process needs it

        self._files: Any
        self._files, self._target = fsspec.core.url_to_fs(url, **driver_options(url))
        if "file" in self._files.protocol:  # other drivers make folders as they are needed, where there are any
            self._files.makedirs(self._target, exist_ok=True)

    def put(self, path: Path) -> bool:
        """Copy a file to the store. Returns True."""
        self._files.put_file(str(path), f"{self._target}/{self._name(path.name)}")
        return True

    def remove(self, name: str) -> bool:
        """Remove a file that was copied to the store. Returns True."""
        self._files.rm_file(f"{self._target}/{self._name(name)}")
        return True

    def _name(self, name: str) -> str:
        """Name in the store, where a job's tasks on several hosts meet: a second manifest gets a name of its own."""
        return self._manifest if name == MANIFEST else name

    @cached_property
    def _manifest(self) -> str:
        again = self._files.exists(f"{self._target}/{MANIFEST}")
        return f"manifest.{host_label()}.{os.getpid()}.json" if again else MANIFEST


def _files(folder: Path) -> dict[str, Stamp]:
    """The regular files of a folder; links are skipped, as they may lead to files that must not leave this host."""
    stamps = {}
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            stamps[entry.name] = status.st_size, status.st_mtime_ns
    return stamps


class LogTo:
    """Trackers that a run is logged to while it runs, by the module `follower`. Started and ended with the job."""

    def __init__(self, folder: Path, name: str, targets: Sequence[str], follower: str) -> None:
        self._folder = folder
        options = [word for target in targets for word in ("--log-to", target)]
        self._command = [sys.executable, "-m", follower, str(folder), "--name", name, *options]
        self._process: subprocess.Popen[bytes] | None = None
        self._started = False

    def start(self) -> None:
        """Start the follower once, in its own session: Ctrl-C is for the job, whose verdict comes afterwards."""
        if self._started:
            return
        self._started = True
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            # The working folder is the user's: a script there that is named like a tracker is none.
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )

    def end(self) -> None:
        """Announce the job's end and wait until the verdict is written; KeyboardInterrupt ends the waiting."""
        self.start()  # of a job that was over before the first tick
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(stated_s("DDPROF_LOG_END_S", _END_S))
        except subprocess.TimeoutExpired:
            say(f"the trackers take too long: ddprof report {self._folder} --to NAME writes the verdict to them")
        finally:
            if process.poll() is None:
                process.terminate()
                wait_or_kill(process, _SETTLE_S)
