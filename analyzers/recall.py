"""Facts that an earlier analysis kept of the same files, so that unchanged inputs are read once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ddprof.analyzers.facts.cache.entries import decode, encode
from ddprof.analyzers.facts.cache.key import cache_key, code_version
from ddprof.analyzers.facts.cache.place import Folder, Place, users_folder
from ddprof.analyzers.facts.model import RankFacts
from ddprof.errors import UsageError
from ddprof.model import HealthNote
from ddprof.readers import Source
from ddprof.readers.companions.stacks import stacks_paths
from ddprof.readers.companions.workers import workers_path

Cache = bool | str  # whether facts are kept in the user's cache, or the folder in which they are


@dataclass(frozen=True)
class Recall:
    """A place, and the version of the code that made what is believed of it. Picklable, for the processes that read."""

    place: Place
    version: str

    def facts_of(self, source: Source) -> RankFacts | None:
        """The facts of a source as it is now; None where they were not kept, or are not to be believed."""
        if "://" in source.path:
            return None
        key = self._key(source)
        content = self.place.load(key, _believed(source.path))
        return None if content is None else decode(content, key)

    def all_of(self, sources: Sequence[Source]) -> list[RankFacts | None]:
        """`facts_of` each."""
        return [self.facts_of(source) for source in sources]

    def keep(self, source: Source, facts: RankFacts) -> list[HealthNote]:
        """Keep facts; a note where that cannot be done."""
        if "://" in source.path:
            return []
        key = self._key(source)
        try:
            self.place.save(key, encode(facts, key))
        except (OSError, ValueError):
            return [HealthNote("facts could not be cached", "the next analysis reads again", "info")]
        return []

    def _key(self, source: Source) -> str:
        return cache_key(self.version, {"source": repr(source), "companions": _stamps(source)})


def recall_of(cache: Cache) -> Recall | None:
    """What is kept where `cache` says; None where nothing is to be kept. Raises UsageError for what is no folder."""
    place = users_folder() if cache is True else _stated(cache) if cache else None
    return None if place is None else Recall(place, code_version())


def _stated(cache: Cache) -> Folder:
    path = os.path.abspath(str(cache))
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--cache {cache}: no folder for facts: {error.strerror}") from error
    return Folder(path)


def _believed(trace_path: str) -> set[int]:
    """Users who can change a report anyhow: whoever reads the trace, whoever wrote it, and root."""
    try:
        return {0, os.getuid(), os.stat(trace_path).st_uid}
    except OSError:
        return {0, os.getuid()}


def _stamps(source: Source) -> tuple[tuple[str, int, int], ...]:
    """Size and time of what lies beside a trace."""
    stamps = []
    beside = (source.sidecar_path, source.flight_recorder_path, workers_path(source.sidecar_path))
    for path in (*beside, *stacks_paths(source.sidecar_path), *source.manifest_paths):
        with suppress(OSError):  # not there, or no longer
            status = os.stat(path or "")
            stamps.append((path or "", status.st_size, status.st_mtime_ns))
    return tuple(stamps)
