"""Process groups.

From the header (`pg_config`) and from the arguments of collectives, which may abbreviate the ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ddprof.model import ProcessGroup
from ddprof.readers.columns.numbers import one_int
from ddprof.readers.json_text.trace_event import Args

_NUMBER = re.compile(r"-?\d+")
NO_GROUP = -(2**31)


class Groups:
    """Numbers the groups of one rank in order of first use."""

    def __init__(self) -> None:
        self.groups: list[ProcessGroup] = []
        self._by_name: dict[tuple[str, str], int] = {}
        self._by_args: dict[tuple[Any, ...], int] = {}

    def number(self, args: Args) -> int:
        """The index of the group a collective ran in; NO_GROUP where its arguments do not name one."""
        key = (args.group_name, str(args.group_ranks), args.rank_start, args.rank_stride, args.group_size)
        found = self._by_args.get(key)
        if found is None:
            found = self._by_args[key] = self._from_args(args)
        return found

    def _from_args(self, args: Args) -> int:
        ranks = stated_ranks(args)
        if args.group_name is None and not ranks:
            return NO_GROUP
        size = one_int(args.group_size)
        name = "" if args.group_name is None else str(args.group_name)
        group = ProcessGroup(name, str(args.group_description or ""), ranks, size if size > 0 else len(ranks) or None)
        return self._merge(group)

    def add(self, group: ProcessGroup) -> int:
        """The index of a group of another format; the same name (or, without one, the same ranks) is the same group."""
        return self._merge(group)

    def add_config(self, config: Any, default_backend: str) -> None:
        """The groups of the header: what collectives do not state (backend, all ranks) is filled in."""
        entries = list(config.values()) if isinstance(config, Mapping) else config
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, Mapping):
                self._merge(_from_config(entry, default_backend))

    def _merge(self, new: ProcessGroup) -> int:
        # Groups without a name are told apart by their ranks.
        key = (new.name, "" if new.name else str(new.ranks))
        at = self._by_name.get(key)
        if at is None:
            self._by_name[key] = len(self.groups)
            self.groups.append(new)
            return len(self.groups) - 1
        old = self.groups[at]
        description = (
            old.description if old.description not in ("", "undefined") else new.description or old.description
        )
        self.groups[at] = ProcessGroup(
            old.name, description, old.ranks or new.ranks, old.size or new.size, old.backend or new.backend
        )
        return at


def stated_ranks(args: Args) -> tuple[int, ...]:
    """The ranks of a group as its collective states them.

    The list, else start and stride where the list is abbreviated.
    """
    listed, size = args.group_ranks, one_int(args.group_size)
    ranks: tuple[int, ...] = ()
    if isinstance(listed, list):
        ranks = tuple(r for r in listed if isinstance(r, int))
    elif isinstance(listed, str) and "..." not in listed:
        ranks = tuple(int(r) for r in _NUMBER.findall(listed))
    if ranks and (size <= 0 or size == len(ranks)):
        return ranks
    start, stride = one_int(args.rank_start), one_int(args.rank_stride)
    if start >= 0 and 0 < size <= 1 << 20 and (stride > 0 or size == 1):
        return tuple(range(start, start + stride * size, stride)) if size > 1 else (start,)
    return ()


def _from_config(entry: Mapping[str, Any], default_backend: str) -> ProcessGroup:
    ranks = entry.get("ranks")
    if isinstance(ranks, str):
        ranks = [int(r) for r in _NUMBER.findall(ranks)] if "..." not in ranks else []
    members = tuple(r for r in ranks if isinstance(r, int)) if isinstance(ranks, list) else ()
    size = one_int(entry.get("pg_size", entry.get("size")))
    if size > 0 and members and size != len(members):
        members = ()
    name = entry.get("pg_name", entry.get("name", ""))
    description = entry.get("pg_desc", entry.get("desc", ""))
    backend = str(entry.get("backend_config", "") or default_backend)
    return ProcessGroup(str(name), str(description), members, size if size > 0 else len(members) or None, backend)
