"""Matching of standstills into rendezvous: they begin apart and end together, when the last rank arrives.

Standstills that collectives explain are no evidence, as ranks that leave one together also stand still together.
Evidence is that the members arrive apart and resume together, at one place of the program, again and again: resumes
differ by no more than RATIO of what arrivals differ by, clock errors included. One of them arrives right before all
resume, and the others wait for it. Where no recorded rank does, the late rank is an unrecorded one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from msgspec import Struct

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.stops import MIN_STOP_NS
from ddprof.analyzers.job.model import Clock
from ddprof.analyzers.job.rendezvous.standstills import Places, Standstills, find_standstills, stretches
from ddprof.tables import NULL

RATIO = 0.1  # an order of magnitude, as everywhere where "far more" is asked for
FEWEST = 3  # ranks that resumed with another one, over all meetings at a place: two may coincide
MOSTLY = 0.8  # of the long standstills at a place are such meetings, or it is no place to meet
FEWEST_DIFFERENCES = 3  # of clocks at a place: two may agree by chance
WORTH = 0.01  # of the step idle in one standstill; others cost nothing to speak of
TRIES = 8  # long standstills of a group at a place that met nobody: then it does not meet there
LEAST_NS = 5_000  # a collective of a few bytes takes 6 to 20 us (nccl-tests), also on the rank that came last
SCATTER_NS = MIN_STOP_NS // 2  # threads that are woken together run within so much of one another


@dataclass(frozen=True)
class Meeting:
    """One rendezvous. Arrays over its members, own clocks, ns."""

    group: tuple[int, ...]  # numbers of the ranks that meet, whether they were recorded or not
    members: tuple[int, ...]  # positions
    arrived_ns: tuple[int, ...]
    resumed_ns: tuple[int, ...]
    launch_ns: tuple[int, ...]  # of the operation that was held up; NULL where unknown and where hosts wait
    on_host: bool


@dataclass(frozen=True)
class _Seen:
    """A possible meeting of a standstill, with the strength of its evidence."""

    meeting: Meeting
    together: int  # members that resume together
    scatter_ns: int  # by how much their resumes differ
    is_strict: bool  # resumes differ by RATIO of what arrivals differ by, or less
    is_prompt: bool  # the last arrives right before all resume
    standstills: tuple[tuple[int, int], ...]  # (position, standstill) of the members that stood still
    moment: tuple[int, int, float]  # when its members come to the place, how long after resuming, and give or take


class _Member(Struct, frozen=True):
    """A rank at a meeting, reference clock, ns."""

    arrived_ns: int
    resumed_ns: int
    is_together: bool  # it resumes when the others do
    standstill: int | None  # the standstill in which it waited
    launch_ns: int  # of the operation that was held up, own clock; NULL where unknown
    offset_ns: int  # of its clock
    error_ns: int


class PlaceClocks:
    """Offset of each rank's clock against the reference, and its error, at a place of the program; ns.

    Ranks that share recorded operations have one clock. Between two hosts without any, work at one place of the program
    serves: if their ranks meet there, the clock difference is the same each time, and its scatter is the error. Ranks
    that do not meet there drift apart step by step, which the error shows.
    """

    def __init__(self, ranks: Sequence[RankFacts], clock: Clock, standstills: Sequence[Standstills]) -> None:
        self._ranks, self._clock, self._standstills = ranks, clock, standstills
        self.at = cache(self._at)
        self._by_domain = cache(self._differences)

    def _at(self, position: int, place: int) -> tuple[int, int] | None:
        """Offset and error of a rank's clock at a place; None where the clocks cannot be compared."""
        name = self._clock.domain_of[position]
        domain = self._clock.domains[name]
        if domain.error_ns is not None:
            return domain.offset_ns, domain.error_ns
        return self._by_domain(self._clock.domain_of.index(name), place)

    def _differences(self, position: int, place: int) -> tuple[int, int] | None:
        """Offset and error of a domain's first rank against the job's first rank: the typical difference of events that
        are nearest if steps begin together.
        """
        facts, first = self._ranks[position], self._ranks[0]
        _, i, j = np.intersect1d(facts.steps["index"], first.steps["index"], return_indices=True)
        if not len(i):
            return None
        rough = round(float(np.median(facts.steps["mark_ns"][i] - first.steps["mark_ns"][j])))
        events, others = self._standstills[position].events, self._standstills[0].events
        here = others.at_ns[others.of(place)].tolist()
        rows = [(events.nearest(place, at + rough), at) for at in here]
        difference = np.array([int(events.at_ns[row]) - at for row, at in rows if row is not None])
        if len(difference) < FEWEST_DIFFERENCES:
            return None
        offset = float(np.median(difference))
        return round(offset), max(1, round(float(np.quantile(np.abs(difference - offset), 0.9))))


class _Search:
    """Looks for the meetings at one place after another."""

    def __init__(
        self,
        standstills: Sequence[Standstills],
        clocks: PlaceClocks,
        numbers: Sequence[int],
        groups: Mapping[tuple[int, ...], tuple[int, ...]],
    ):
        self._standstills, self._clocks, self._numbers = standstills, clocks, numbers
        self._groups = dict(sorted(groups.items(), key=lambda item: -len(item[0])))

    def meet_at(self, place: int, worth_ns: float) -> list[Meeting]:
        """The meetings at a place; [] where ranks do not meet there."""
        seeds = sorted(
            ((int(p.idle_ns[row]), position, row) for position, p in enumerate(self._standstills)
             for row in np.flatnonzero(p.events.place[p.event] == place).tolist()),
            reverse=True,
        )  # fmt: skip
        used: set[tuple[int, int]] = set()
        accepted: list[_Seen] = []
        of_groups: list[list[_Seen]] = []
        for group, members in self._groups.items():
            left = [(position, row) for _, position, row in seeds if position in members]
            met = self._of_group(place, group, members, [each for each in left if each not in used])
            if met:
                of_groups.append(met)
                used |= {standstill for seen in met for standstill in seen.standstills}
        long = [(position, row) for idle, position, row in seeds if idle >= worth_ns]
        for met in of_groups:
            accepted += self._joined(place, met, [each for each in long if each not in used])
        used |= {standstill for seen in accepted for standstill in seen.standstills}
        explained = sum(standstill in used for standstill in long)
        return [seen.meeting for seen in accepted] if explained >= MOSTLY * len(long) else []

    def _joined(self, place: int, met: list[_Seen], left: Sequence[tuple[int, int]]) -> list[_Seen]:
        """The meetings of a group, with the ranks that are not of it and wait there for it: one that gathers what the
        last stage of a pipeline computed. It resumes with the group where it stood still for long, MOSTLY.
        `left`: long standstills at the place that no group explains.
        """
        for position, times in sorted(Counter(position for position, _ in left).items()):
            if times < FEWEST or position in met[0].meeting.members:
                continue
            came = [self._member(place, position, *seen.moment, seen.meeting.on_host) for seen in met]
            waited = [each if each is not None and each.standstill is not None else None for each in came]
            if sum(each is not None for each in waited) >= max(FEWEST, MOSTLY * times):
                met = [
                    seen if each is None else _with(seen, self._numbers[position], position, each)
                    for seen, each in zip(met, waited, strict=True)
                ]
        return met

    def _of_group(
        self, place: int, group: tuple[int, ...], members: tuple[int, ...], seeds: Sequence[tuple[int, int]]
    ) -> list[_Seen]:
        """The meetings of a group at a place, [] without enough evidence."""
        strict = [seen for seen in self._each(place, group, members, seeds, SCATTER_NS, TRIES) if seen.is_strict]
        if sum(seen.together - 1 for seen in strict) < FEWEST:
            return []
        is_whole = len(members) == len(group)
        if is_whole and sum(seen.is_prompt for seen in strict) < MOSTLY * len(strict):
            return []
        scatter_ns = max(SCATTER_NS, 2 * max(seen.scatter_ns for seen in strict))
        return self._each(place, group, members, seeds, scatter_ns, len(seeds))

    def _each(
        self,
        place: int,
        group: tuple[int, ...],
        members: tuple[int, ...],
        seeds: Sequence[tuple[int, int]],
        scatter_ns: int,
        tries: int,
    ) -> list[_Seen]:
        """The meetings of some standstills without duplicates; [] where the first `tries` met no one."""
        met: list[_Seen] = []
        used: set[tuple[int, int]] = set()
        for tried, seed in enumerate(seeds):
            if tried >= tries and not met:
                return []
            seen = None if seed in used else self._meet(place, group, members, seed, scatter_ns)
            if seen is not None:
                met.append(seen)
                used |= set(seen.standstills)
        return met

    def _meet(
        self, place: int, group: tuple[int, ...], members: tuple[int, ...], seed: tuple[int, int], scatter_ns: int
    ) -> _Seen | None:
        """The meeting of a standstill; None where a member was busy with something else when it ended."""
        position, row = seed
        rank, clock = self._standstills[position], self._clocks.at(position, place)
        if clock is None:
            return None
        event = int(rank.event[row])
        at_ns = int(rank.events.at_ns[event]) - clock[0]
        after_ns = int(rank.events.at_ns[event] - rank.resumed_ns[row])  # from resuming to the event
        within_ns = max(scatter_ns, RATIO * float(rank.resumed_ns[row] - rank.arrived_ns[row]))
        met = [self._member(place, q, at_ns, after_ns, within_ns, bool(rank.on_host[row])) for q in members]
        here = [each for each in met if each is not None]
        if len(here) < len(members):
            return None
        together = [each.resumed_ns for each in here if each.is_together]
        arrived, error_ns = [each.arrived_ns for each in here], max(each.error_ns for each in here)
        release_ns, apart_ns = min(together), max(arrived) - min(arrived)
        if len(together) < 2 or max(arrived) > release_ns + scatter_ns + error_ns:
            return None
        meeting = Meeting(
            group=group,
            members=members,
            arrived_ns=tuple(each.arrived_ns + each.offset_ns for each in here),
            resumed_ns=tuple(max(each.resumed_ns, each.arrived_ns) + each.offset_ns for each in here),
            launch_ns=tuple(each.launch_ns for each in here),
            on_host=bool(rank.on_host[row]),
        )
        return _Seen(
            meeting,
            together=len(together),
            scatter_ns=max(together) - release_ns,
            is_strict=max(together) - release_ns + error_ns <= RATIO * apart_ns,
            is_prompt=release_ns - max(arrived) <= max(MIN_STOP_NS, RATIO * apart_ns) + error_ns,
            standstills=tuple(
                (q, each.standstill) for q, each in zip(members, here, strict=True) if each.standstill is not None
            ),
            moment=(at_ns, after_ns, within_ns),
        )

    def _member(
        self, place: int, position: int, at_ns: int, after_ns: int, within_ns: float, on_host: bool
    ) -> _Member | None:
        """A rank's part when others resumed and reached the place at `at_ns` (reference clock), `after_ns` later.

        It resumed with them or, for device operations, had ended earlier and stood still; otherwise None.
        """
        rank, clock = self._standstills[position], self._clocks.at(position, place)
        if clock is None:
            return None
        offset_ns, error_ns = clock
        event = rank.events.nearest(place, at_ns + offset_ns)
        off_ns = np.inf if event is None else abs(int(rank.events.at_ns[event]) - offset_ns - at_ns)
        # What a rank does all the time is never far from any moment, and tells nothing.
        if event is not None and off_ns <= min(within_ns + error_ns, RATIO * rank.events.apart_ns(event)):
            launch_ns = int(rank.events.launch_ns[event])
            standstill = rank.at(event)
            if standstill is not None:
                begin, end = int(rank.arrived_ns[standstill]), int(rank.resumed_ns[standstill])
            else:
                came = int(rank.events.at_ns[event])
                # Nothing lies between the meeting and what its members do next: no call that ends there is before it.
                end = max(came - after_ns, rank.last_end_ns(came)) if on_host else came - after_ns
                begin = max(rank.last_end_ns(end), end - MIN_STOP_NS)
                if not on_host and launch_ns != NULL:  # timelines of whole passes, without launches, leave no gap
                    idle_ns = rank.idle_around(end - 1)
                    if idle_ns is None or end - idle_ns < LEAST_NS:
                        return None
                    begin = max(idle_ns, end - MIN_STOP_NS)
            return _Member(begin - offset_ns, end - offset_ns, True, standstill, launch_ns, offset_ns, error_ns)
        still = rank.idle_around(at_ns - after_ns + offset_ns)
        if on_host or still is None:
            return None
        return _Member(still - offset_ns, at_ns - after_ns, False, None, NULL, offset_ns, error_ns)


def _with(seen: _Seen, rank: int, position: int, member: _Member) -> _Seen:
    """The meeting with one more member."""
    met = seen.meeting
    resumed_ns = max(member.resumed_ns, member.arrived_ns) + member.offset_ns
    meeting = replace(
        met,
        group=tuple(sorted((*met.group, rank))),
        members=(*met.members, position),
        arrived_ns=(*met.arrived_ns, member.arrived_ns + member.offset_ns),
        resumed_ns=(*met.resumed_ns, resumed_ns),
        launch_ns=(*met.launch_ns, member.launch_ns),
    )
    stood = () if member.standstill is None else ((position, member.standstill),)
    return replace(seen, meeting=meeting, standstills=(*seen.standstills, *stood))


def find_meetings(
    ranks: Sequence[RankFacts], clock: Clock, groups: Sequence[tuple[int, ...]], step_ns: float
) -> list[Meeting]:
    """Every rendezvous of ranks on devices. `groups`: numbers of ranks that may meet."""
    places: Places = {}
    worth_ns = WORTH * step_ns
    still = [stretches(facts) for facts in ranks]
    if all(rank.longest_ns() < worth_ns for rank in still):
        return []  # nobody stands still for long: what ranks do next need not be known
    standstills = [find_standstills(facts, rank, places) for facts, rank in zip(ranks, still, strict=True)]
    position = {facts.identity.rank: p for p, facts in enumerate(ranks)}
    traced = {group: tuple(position[r] for r in group if r in position) for group in groups}
    numbers = [p if facts.identity.rank is None else facts.identity.rank for p, facts in enumerate(ranks)]
    meet = {g: at for g, at in traced.items() if len(at) > 1}
    search = _Search(standstills, PlaceClocks(ranks, clock, standstills), numbers, meet)
    # Places where some rank stands still for long.
    worth = np.unique(np.concatenate([p.events.place[p.event[p.idle_ns >= worth_ns]] for p in standstills]))
    return [meeting for place in worth.tolist() for meeting in search.meet_at(place, worth_ns)]
