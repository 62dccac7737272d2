"""The facts cache: facts of unchanged files are read back instead of computed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any

from ddprof._version import __version__
from ddprof.analyzers.facts.cache import MAX_ENTRY_BYTES, Folder, Place, Store, decode, encode, users_folder
from ddprof.analyzers.facts.model import RankFacts
from ddprof.errors import UsageError
from ddprof.model import HealthNote
from ddprof.readers import Source
from ddprof.readers.files.opening import UNREADABLE, one_line
from ddprof.readers.files.remote import Listed, Names, is_url, starting_with
from ddprof.readers.side_files.stacks import side_files
from ddprof.untrusted.stores import store_at

Cache = bool | str  # whether facts are kept in the user's cache, or the folder or URL at which they are
GIVE_UP = 3  # failures one after another, each of which a store's driver has repeated: the place does not answer
Stamp = tuple[str, int | str, int]  # of a file: path, size or what a store tells, time
# The modules that make facts: a change of any of these files makes all kept facts stale.
_MAKERS = {
    **{"ddprof": "*.py", "ddprof.sidecar": "*.py"},
    **{"ddprof.readers": "**/*.py", "ddprof.slices": "**/*.py", "ddprof.analyzers.facts": "**/*.py"},
}
_DIGITS = 20


class Recall:
    """A cache place, the version of the code whose facts it may return, and whether it still answers."""

    def __init__(self, place: Place, version: str) -> None:
        self.place, self._version = place, version
        self._failures = 0  # one after another
        self.failure = ""  # the last one

    def keys_of(self, sources: Sequence[Source]) -> list[str | None]:
        """The present key of each source; None in a store that does not show when a file changes.

        Ask before reading a source, so that newer content is never kept under an older key.
        """
        listed = Listed()
        return [self._key(source, listed) for source in sources]

    def all_of(self, sources: Sequence[Source], keys: Sequence[str | None], alike: Alike) -> list[RankFacts | None]:
        """The facts of each source; None where they were not kept or cannot be trusted.

        `alike` shares what ranks have in common, since the group members of a large job, repeated per rank, are larger
        than the rest.
        """

        def kept(source: Source, key: str | None) -> RankFacts | None:
            facts = self._facts_of(source, key)
            return None if facts is None else alike.shared(facts)

        with ThreadPoolExecutor(self.place.at_once) as pool:
            return list(pool.map(kept, sources, keys))

    def keep(self, key: str, facts: RankFacts) -> bool:
        """Keep facts; False where that fails, with the reason in `failure`."""
        try:
            chunks = encode(facts, key)
        except ValueError:
            return False
        if sum(map(len, chunks)) > MAX_ENTRY_BYTES:
            self.failure = f"larger than {MAX_ENTRY_BYTES >> 20} MiB"
            return False
        if self._answers():
            with self._asking():
                self.place.save(key, chunks)
                return True
        return False

    def _facts_of(self, source: Source, key: str | None) -> RankFacts | None:
        if key is None or not self._answers():
            return None
        content = None
        with self._asking():
            content = self.place.load(key, _believed(source.path))
        return None if content is None else decode(content, key)

    def _answers(self) -> bool:
        return self._failures < GIVE_UP

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Count failures of the place inside, one after another; none is raised."""
        try:
            yield
        except (OSError, ImportError) as error:
            self._failures, self.failure = self._failures + 1, one_line(error)
        else:
            self._failures = 0

    def _key(self, source: Source, listed: Listed) -> str | None:
        beside = _in_store(source, listed) if is_url(source.path) else _here(source)
        if beside is None:
            return None
        return _cache_key(self._version, {"source": repr(source), "companions": beside})


class Keeping:
    """Writes facts to their place, as many at once as it takes; `notes` finally lists the failures."""

    def __init__(self, recall: Recall | None) -> None:
        self._recall = recall
        self._pool = None if recall is None else ThreadPoolExecutor(recall.place.at_once)
        self._under_way: list[Future[bool]] = []
        self.notes: list[HealthNote] = []

    def __enter__(self) -> Keeping:
        return self

    def take(self, key: str | None, facts: RankFacts) -> None:
        """Keep facts under a key; ignore None."""
        if self._recall is not None and self._pool is not None and key is not None:
            self._under_way.append(self._pool.submit(self._recall.keep, key, facts))

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._recall is None or self._pool is None:
            return
        self._pool.shutdown(cancel_futures=kind is not None)
        if kind is None and self._under_way:
            if not all(kept.result() for kept in self._under_way):
                why = f": {self._recall.failure}" if self._recall.failure else ""
                issue = f"facts could not be cached{why}"
                self.notes.append(HealthNote(issue, "the next analysis reads again", "info"))
            self._recall.place.prune()


def recall_of(cache: Cache) -> Recall | None:
    """The cache that `cache` names, None for none. Raises UsageError for a place that cannot be used."""
    place = users_folder() if cache is True else _stated(str(cache)) if cache else None
    return None if place is None else Recall(place, _code_version())


def _stated(cache: str) -> Place:
    path = cache
    if is_url(cache):
        try:
            with store_at(cache) as (system, path):
                is_here = "file" in (system.protocol if isinstance(system.protocol, tuple) else (system.protocol,))
        except UNREADABLE as error:
            raise UsageError(f"--cache {cache}: no place for facts: {one_line(error)}") from error
        if not is_here:
            return Store(cache)
    path = os.path.abspath(path)
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--cache {cache}: no folder for facts: {error.strerror}") from error
    return Folder(path)


def _believed(trace_path: str) -> set[int]:
    """Users whose cache entries are trusted, as they can change a report anyway: this user, the trace's owner, root."""
    try:
        return {0, os.getuid(), os.stat(trace_path).st_uid}
    except OSError:
        return {0, os.getuid()}


def _here(source: Source) -> tuple[Stamp, ...]:
    """Size and modification time of the trace and of the files beside it."""
    stamps: list[Stamp] = []
    for path in _beside(source, starting_with):
        with suppress(OSError):  # not there, or no longer
            status = os.stat(path)
            stamps.append((path, status.st_size, status.st_mtime_ns))
    return tuple(stamps)


def _in_store(source: Source, listed: Listed) -> tuple[Stamp, ...] | None:
    """Stamps of the trace and the files beside it in a store; None where the store does not tell enough."""
    try:
        stamps = {path: listed.stamp(path) for path in _beside(source, listed.starting_with)}
    except UNREADABLE:
        return None
    if not source.stamp or "" in stamps.values():
        return None
    return tuple((path, stamp, 0) for path, stamp in stamps.items() if stamp is not None)


def _beside(source: Source, named: Names) -> list[str]:
    fetches, stacks = side_files(source.sidecar_path, named)
    paths = (source.sidecar_path, source.flight_recorder_path, *fetches, *stacks, *source.manifest_paths)
    return [path for path in paths if path is not None]


@lru_cache(maxsize=1)
def _code_version() -> str:
    """Digest of the modules that make facts, so that no version number needs raising by hand."""
    digest = hashlib.sha256(__version__.encode())
    for package, pattern in _MAKERS.items():
        for file in sorted(Path(str(files(package))).glob(pattern)):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _cache_key(version: str, parts: Mapping[str, Any]) -> str:
    """Cache key of a source: twenty hexadecimal digits from its `parts` and the version of the code."""
    return hashlib.sha256(repr((version, sorted(parts.items()))).encode()).hexdigest()[:_DIGITS]


class Alike:
    """Names and process groups of earlier ranks, for sharing equal objects."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def shared(self, facts: RankFacts) -> RankFacts:
        """The facts with objects equal to an earlier rank's replaced by that rank's."""
        strings, groups = (self._known.setdefault(item, item) for item in (facts.strings, facts.process_groups))
        return replace(facts, strings=strings, process_groups=groups)
