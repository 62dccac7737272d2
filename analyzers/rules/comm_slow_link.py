"""One rank's or host's transfers are slower than its peers'.

What it detects: groups of one role move equal messages clearly more slowly where a certain rank or host takes part.
Ranks that send each other messages (the stages of a pipeline) are judged in pairs: those of one pair take clearly
longer than equal ones of others.
Why it costs: a collective is as fast as its slowest link, and so is the steady state of a pipeline.
How the gain is priced: the run is replayed with those groups' or pairs' transfers as fast as their peers'.
How to fix: look at the link and the transport there: cable, NIC, PCIe width, NCCL transport, routing. Where `ddprof
run` recorded them, the finding says what differs there: NCCL's transport, a port that is down or slower, a GPU with
fewer PCIe lanes.
Limits: at least two groups or pairs are needed to compare (tensor-parallel pairs, hybrid shards, pipeline neighbours);
links between hosts are not held against links inside one. A link has no peer where it is the only one between hosts, or
sizes of messages were not recorded. Its measure is then a usual link between nodes: what messages take inside a host,
times the ratio of rated links in the device's usual node (12 on A100). In one world-wide ring all members see the slow
link alike, so no rank can be named. CPU ranks of one machine have no link: their transfers wait for a core. CPU ranks
record a message until somebody waits for it, which says nothing about its link.
Sources: Holmes (NSDI'25): all members abnormal and no late starter means the transfer is slow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.stage_links import SlowGroups, SlowLinks, slow_groups, stage_links
from ddprof.analyzers.rules.evidence.spans import slowest_message, slowest_transfer
from ddprof.analyzers.rules.evidence.transport import of_ranks
from ddprof.finding_ids import COMM_SLOW_LINK
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_ranks, format_us


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find groups with slow transfers and their common ranks, and pairs of ranks with slow messages."""
    job = measures.job
    timed = not execution_of(job).messages_last_until_waited_for
    if not timed and len(set(job.clock.domain_of)) == 1:
        yield Abstention(RULE.id, "all ranks are processes of one machine, with no link between them")
        return
    compared, links = stage_links(job) if timed else (0, None)
    if len(job.groups) < 2 and not compared:
        yield Abstention(RULE.id, "with one process group, a slow link looks alike from every rank")
        return
    if links is not None:
        yield _between_stages(measures, links)
    groups = slow_groups(job)
    by_ranks: dict[tuple[int, ...], list[SlowGroups]] = defaultdict(list)
    for slow in groups:
        by_ranks[_culprits(slow, [s for s in groups if s is not slow])].append(slow)
    for numbers, kinds in by_ranks.items():
        if numbers:
            yield _of_groups(measures, numbers, sorted(kinds, key=lambda slow: -slow.excess_us))


def _of_groups(measures: Measures, numbers: tuple[int, ...], kinds: list[SlowGroups]) -> Candidate:
    """One finding on the link of some ranks for all the groups that it serves."""
    most = kinds[0]
    return Candidate(
        id=RULE.id,
        summary=f"transfers of {format_ranks(numbers)} take {most.ratio:.1f}x as long as their peers'",
        ranks=numbers,
        lost_us=sum(slow.excess_us for slow in kinds),
        changes=tuple(
            Change("speed_groups", (), (1.0 / slow.ratio, *map(float, slow.groups)), slow.role) for slow in kinds
        ),
        basis=Basis.COMPARED if len(numbers) <= 2 else Basis.DEDUCED,
        evidence=(
            *(
                Evidence(
                    f"{slow.role or f'{slow.size}-rank'} groups with {format_ranks(numbers)}: "
                    f"{format_us(slow.slow_us)} per message against {format_us(slow.peer_us)}",
                    numbers[0],
                )
                for slow in kinds
            ),
            *of_ranks(measures, numbers),
            *slowest_transfer(measures, most.groups, numbers[0]),
        ),
        fixes=(_look("link of " + format_ranks(numbers), "the same messages are fast in every group without them"),),
    )


def _between_stages(measures: Measures, links: SlowLinks) -> Candidate:
    """Finding on pairs of ranks whose messages take longer than those of other pairs."""
    numbers = measures.ranks(list(links.culprits))
    pairs = [measures.ranks(list(pair)) for pair in links.pairs]
    words = ", ".join(f"{a} and {b}" for a, b in pairs)
    others = "a usual link between hosts" if links.only_factor else "those of other pairs"
    usual = f", {links.only_factor:.0f} times what they take inside a host" if links.only_factor else ""
    return Candidate(
        id=RULE.id,
        summary=f"messages between ranks {words} take {links.ratio:.1f}x as long as {others}",
        ranks=numbers,
        lost_us=links.excess_us,
        changes=(Change("speed_links", tuple(rank for pair in pairs for rank in pair), (1.0 / links.ratio,)),),
        basis=Basis.COMPARED if len(numbers) <= 2 else Basis.DEDUCED,
        evidence=(
            Evidence(
                f"between ranks {words}: {format_us(links.slow_us)} per message against {format_us(links.peer_us)}"
                f"{usual}, once both ranks are there",
                numbers[0],
            ),
            *of_ranks(measures, numbers),
            *slowest_message(measures, links.pairs),
        ),
        fixes=(_look(f"link between ranks {words}", "equal messages are fast between all other pairs of ranks"),),
    )


def _look(setting: str, why: str) -> Fix:
    return Fix(
        setting=setting,
        suggested="check NIC, PCIe width and NCCL transport on that host",
        patch="NCCL_DEBUG=INFO torchrun ...   # which transport; then ibstat, lspci -vv, nvidia-smi topo -m",
        why=why,
        source="Holmes (NSDI'25)",
    )


def _culprits(slow: SlowGroups, elsewhere: list[SlowGroups]) -> tuple[int, ...]:
    """Ranks that are in slow groups and in no fast group of the same role."""
    numbers = sorted(slow.members - slow.fast_members)
    for candidate in elsewhere:
        both = set(numbers) & candidate.members
        if both and len(both) < len(numbers):
            numbers = sorted(both)
    return tuple(int(n) for n in np.asarray(numbers, dtype=int))


RULE = Rule(
    COMM_SLOW_LINK,
    "A link is slower than its peers",
    detect,
    bound="communication",
    compares_ranks=True,
    reads_traffic=True,
)
