"""Process groups.

From the header (`pg_config`) and from the arguments of collectives, which may abbreviate the ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ddprof.model import ProcessGroup
from ddprof.readers.json_text.trace_event import Args, as_text
from ddprof.readers.numbers import LARGEST_RANK, one_int, one_rank
from ddprof.tables import NULL
from ddprof.untrusted.secrets import masked

_NUMBER = re.compile(r"-?\d+")
NO_GROUP = -(2**31)
REMEMBERED = 2**6  # texts of lists: the groups that one rank is in, with room for those of others
# As ncclFunc_t counts them; those of other names share the last place.
_FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv")
_PLACES = len(_FUNCTIONS) + 1
_LARGEST_NUMBER = 2**59  # so that it can be multiplied


class Groups:
    """Process groups of one rank, numbered in order of first use."""

    def __init__(self) -> None:
        self.groups: list[ProcessGroup] = []
        self.unnamed = 0  # collectives whose group has a name that is no text
        self._by_name: dict[tuple[str, str], int] = {}
        self._by_args: dict[tuple[Any, ...], int] = {}

    def number(self, args: Args) -> int:
        """The index of a collective's group; NO_GROUP where its arguments do not name one."""
        self.unnamed += args.group_name is not None and as_text(args.group_name) is None
        listed = args.group_ranks
        stated = as_text(listed) if not isinstance(listed, list) else tuple(map(as_text, listed))
        numbers = (args.rank_start, args.rank_stride, args.group_size)
        key = (as_text(args.group_name), stated, *map(as_text, numbers))
        number = self._by_args.get(key)
        if number is None:
            number = self._by_args[key] = self._from_args(args)
        return number

    def _from_args(self, args: Args) -> int:
        ranks = stated_ranks(args)
        name = as_text(args.group_name)
        if name is None and not ranks:
            return NO_GROUP
        size = one_rank(args.group_size)
        group = ProcessGroup(name or "", as_text(args.group_description) or "", ranks, size or len(ranks) or None)
        return self.add(group)

    def add_config(self, config: Any, default_backend: str) -> None:
        """Add the groups of the header, which state what collectives do not (backend, all ranks)."""
        entries = list(config.values()) if isinstance(config, Mapping) else config
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, Mapping):
                self.add(_from_config(entry, default_backend))

    def add(self, stated: ProcessGroup) -> int:
        """The index of a group; the same name (or, without one, the same ranks) is the same group."""
        new = replace(stated, description=masked(stated.description))
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
    ranks, size = _members(args.group_ranks), one_rank(args.group_size)
    if ranks and (not size or size == len(ranks)):
        return ranks
    start, stride = one_rank(args.rank_start), one_int(args.rank_stride)
    if start is None or not size or (stride <= 0 and size > 1):
        return ()
    last = start + stride * (size - 1)
    return (start,) if size == 1 else tuple(range(start, last + 1, stride)) if last <= LARGEST_RANK else ()


def _members(listed: Any) -> tuple[int, ...]:
    """Ranks from a list or its text; () where it is abbreviated, or an entry cannot be a rank."""
    if isinstance(listed, str):
        return _members_in(listed)
    if not isinstance(listed, list) or not listed:
        return ()
    if set(map(type, listed)) == {int} and min(listed) >= 0 and max(listed) <= LARGEST_RANK:
        return tuple(listed)  # nearly all
    ranks = [one_rank(rank) for rank in listed]
    members = tuple(rank for rank in ranks if rank is not None)
    return members if len(members) == len(ranks) else ()


@lru_cache(maxsize=REMEMBERED)
def _members_in(text: str) -> tuple[int, ...]:
    """Members in a list's text, cached as all ranks of a job share it."""
    return _members(_NUMBER.findall(text)) if "..." not in text else ()


def _from_config(entry: Mapping[str, Any], default_backend: str) -> ProcessGroup:
    members, size = _members(entry.get("ranks")), one_rank(entry.get("pg_size", entry.get("size")))
    if size and size != len(members):
        members = ()
    name = as_text(entry.get("pg_name", entry.get("name"))) or ""
    description = as_text(entry.get("pg_desc", entry.get("desc"))) or ""
    backend = as_text(entry.get("backend_config")) or default_backend
    return ProcessGroup(name, description, members, size or len(members) or None, backend)


def number_in_communicator(function: str, number: int) -> int:
    """NCCL's sequence number made unique within the communicator; NULL where there is none.

    NCCL counts the calls of each function of a communicator on its own (comm->seqNumber[func], src/include/comm.h), so
    that an AllGather and a ReduceScatter of one communicator have the same numbers.
    """
    if not 0 <= number < _LARGEST_NUMBER:
        return NULL
    place = _FUNCTIONS.index(function) if function in _FUNCTIONS else len(_FUNCTIONS)
    return number * _PLACES + place
