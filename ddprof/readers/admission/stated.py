"""Statements of a file on its rank, from its name and the few kilobytes before its events."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from ddprof.errors import NoUsableInput
from ddprof.model import ProcessGroup
from ddprof.readers.columns.groups import Groups
from ddprof.readers.files.names import file_name, host_in_any_name, rank_in_name
from ddprof.readers.files.remote import is_url
from ddprof.readers.files.streams import open_blocks
from ddprof.readers.formats.kineto import FORMAT as KINETO
from ddprof.readers.formats.kineto.header import Header, parse_header
from ddprof.readers.json_text.structure import Beginning
from ddprof.readers.source import Source
from ddprof.untrusted.stores import AT_ONCE

MAX_HEAD_BYTES = 4 << 20  # the groups of ten thousand ranks take 1 MB


class Stated(Struct, frozen=True):
    """Rank, host and process groups of a source, as far as the source states them."""

    source: Source
    rank: int | None
    host: str | None = None
    groups: tuple[ProcessGroup, ...] = ()
    world_size: int | None = None


def stated_by(sources: Sequence[Source]) -> list[Stated]:
    """Statements of each source, in order. Never raises: a reader reports what is wrong with a file."""
    if not any(is_url(source.path) for source in sources):
        return [_stated(source) for source in sources]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(_stated, sources))


def _stated(source: Source) -> Stated:
    name = source.member or source.path
    header = _header(source) if source.format == KINETO.name else Header({})
    groups = Groups()
    groups.add_config(header.distributed.get("pg_config"), header.backend or "")
    rank = header.rank if header.rank is not None else rank_in_name(name)
    size = header.distributed.get("world_size")
    world_size = size if isinstance(size, int) and size > 0 else None
    return Stated(source, rank, header.host or host_in_any_name(file_name(name)), tuple(groups.groups), world_size)


def _header(source: Source) -> Header:
    """The values before the list of events; none where the list does not begin within MAX_HEAD_BYTES."""
    beginning, seen_bytes = Beginning(), 0
    try:
        with open_blocks(source.path, source.member, head_only=True) as blocks:
            for block in blocks:
                start = beginning.add(block, is_last=False)
                seen_bytes += len(block)
                if start is not None:
                    return Header(parse_header(bytes(beginning.text[: start.offset]), b"")[0])
                if seen_bytes > MAX_HEAD_BYTES:
                    break
    except NoUsableInput:
        pass
    return Header({})
