"""Traces that a visitor uploads: of limited size, in a private folder while the server runs, analyzed like others."""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import count
from pathlib import Path

from flask import Blueprint, Response, abort, jsonify, request
from werkzeug.datastructures import FileStorage
from werkzeug.exceptions import BadRequest, RequestEntityTooLarge

from ddprof.dashboard.pages.data import FIELD, HEADER, too_large_words
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.dashboard.runs.served import Runs, attempt
from ddprof.dashboard.server.guard import UPLOAD_PATH
from ddprof.errors import NoUsableInput, UsageError
from ddprof.readers.files.archives import MAX_MEMBERS
from ddprof.readers.files.streams import exceeds
from ddprof.units import format_bytes

MAX_UPLOADS = 8  # kept at a time: with the limit of one they bound the disk
MOST_UNPACKED = 32  # times the limit: profiler traces pack 10 to 25 times, what packs better is made to fill memory
RECEIVED_AT_ONCE = 2  # each takes up to the limit of temporary disk while it comes in
MAX_NAME_CHARS = 100
_OTHER_THAN_NAME = re.compile(r"[^A-Za-z0-9._=+-]+")


class Uploads:
    """Adds uploaded files to the served runs, one upload at a time. Its folder is removed when the server ends."""

    def __init__(self, runs: Runs, limit_bytes: int) -> None:
        self._runs, self._limit_bytes = runs, limit_bytes
        self._kept, self._lock = 0, threading.Lock()
        # Made when it is needed: a folder for this user only (mode 0700), removed when the interpreter ends.
        self._private = cache(partial(tempfile.TemporaryDirectory, prefix="ddprof-"))

    def add(self, files: Sequence[FileStorage]) -> int:
        """Analyze files as one input; the number of the first new run. Raises NoUsableInput, in one line."""
        with self._lock:
            if self._kept >= MAX_UPLOADS:
                words = f"{MAX_UPLOADS} uploads are open, no more are kept: start ddprof serve again to drop them"
                raise NoUsableInput(words)
            # The parent of the upload's own folder has a name of its own: nothing an upload leaves is in another's way.
            place = attempt(lambda: tempfile.mkdtemp(dir=self._private().name))
            folder = Path(place) / f"upload-{self._kept + 1}"
            number = None
            try:
                number = self._runs.add(attempt(lambda: self._open_runs(folder, files)))
            except NoUsableInput as error:
                raise NoUsableInput(str(error).replace(f"{folder}/", "").replace(place, "")) from error
            finally:
                if number is None:
                    shutil.rmtree(place, ignore_errors=True)
            self._kept += 1
            return number

    def _open_runs(self, folder: Path, files: Sequence[FileStorage]) -> list[OpenRun]:
        folder.mkdir()
        paths = [str(folder / name) for name in stored_names([file.filename or "" for file in files])]
        for file, path in zip(files, paths, strict=True):
            file.save(path)
        most_bytes = MOST_UNPACKED * self._limit_bytes
        if exceeds(paths, most_bytes):
            raise UsageError(f"the upload unpacks to more than {format_bytes(most_bytes)}: refused")
        return load(paths, self._runs.workers)


def stored_names(stated: Sequence[str]) -> list[str]:
    """Names to keep uploaded files under: no folder, no hidden file, plain characters, each name once."""
    names: dict[str, None] = {}  # in order
    numbers: defaultdict[str, Iterator[int]] = defaultdict(partial(count, 1))
    for text in stated:
        last = text.replace("\\", "/").rpartition("/")[2]
        name = plain = _OTHER_THAN_NAME.sub("_", last)[-MAX_NAME_CHARS:].lstrip(".") or "file"
        while name in names:
            name = f"{next(numbers[plain])}-{plain}"
        names[name] = None
    return list(names)


def upload_route(runs: Runs, limit_bytes: int) -> Blueprint:
    """POST UPLOAD_PATH: files in, {"run": number} out; refusals are one line of text."""
    blueprint, uploads = Blueprint("upload", __name__), Uploads(runs, limit_bytes)
    turn = threading.BoundedSemaphore(RECEIVED_AT_ONCE)

    def receive() -> Response:
        """The request's files, analyzed; a refusal names its reason."""
        if HEADER not in request.headers:
            return _refused("uploads are taken from the dashboard's own page only", 403)
        if not turn.acquire(blocking=False):
            return _refused(f"{RECEIVED_AT_ONCE} uploads are being read: try again in a moment", 429)
        try:
            return jsonify(run=uploads.add(_sent_files(limit_bytes)))
        except NoUsableInput as error:
            return _refused(str(error), 400)
        finally:
            turn.release()

    blueprint.add_url_rule(UPLOAD_PATH, "receive", receive, methods=["POST"])
    return blueprint


def _sent_files(limit_bytes: int) -> list[FileStorage]:
    """The files of the request, received here. Raises NoUsableInput, or aborts with 413."""
    request.max_form_parts = MAX_MEMBERS
    try:
        files = [file for file in request.files.getlist(FIELD) if file.filename]
    except RequestEntityTooLarge:
        if request.content_length is not None and request.content_length <= limit_bytes:
            raise NoUsableInput(f"more than {MAX_MEMBERS:,} files in one upload: pack them into one archive") from None
        abort(413, too_large_words(limit_bytes))
    except BadRequest as error:
        raise NoUsableInput("the upload was cut off") from error
    except OSError as error:
        raise NoUsableInput(f"the upload cannot be kept: {error.strerror or type(error).__name__}") from error
    if not files:
        raise NoUsableInput("no file was sent")
    return files


def _refused(words: str, status: int) -> Response:
    return Response(words, status, mimetype="text/plain")
