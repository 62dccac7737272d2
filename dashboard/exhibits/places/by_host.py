"""Exhibit on late hosts: the blame of each host's ranks together, and whether the host or one rank is late."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.job.charged import waited_for_us
from ddprof.causes import CAUSE_IDS, CAUSES
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, matrix, sheet
from ddprof.dashboard.figures.charts import Stacked, all_cause_parts
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.report.phrases import clean
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share, format_us

MAX_HOSTS = 16  # in one picture; its table has all of them
_QUESTION = "Which host makes the others wait?"


def hosts_of(opened: OpenRun) -> dict[str, list[int]]:
    """Hosts that were recorded, each with the positions of its ranks."""
    hosts: dict[str, list[int]] = {}
    for position, rank in enumerate(opened.job.rank_ids):
        host = opened.report.run.hosts.get(rank, "")
        if host:
            hosts.setdefault(clean(host), []).append(position)
    return hosts


def by_host(view: View) -> Exhibit | None:
    """The exhibit; None with fewer than two known hosts."""
    opened = view.opened
    hosts = hosts_of(opened)
    if len(hosts) < 2:
        return None
    by_rank = waited_for_us(opened.job) / 1e3
    charged = np.array([by_rank[positions].sum(axis=0) for positions in hosts.values()])
    total = charged.sum(axis=1)
    columns = ("host", "ranks", *(f"{row.label} (ms)" for row in CAUSES.values()), "all (ms)")
    ranks = [format_ranks([opened.job.rank_ids[p] for p in positions]) for positions in hosts.values()]
    numbers = matrix(columns[:1] + columns[2:], hosts, np.column_stack((charged, total)))
    rows = [(row[0], named, *row[1:]) for row, named in zip(numbers.rows, ranks, strict=True)]
    table = sheet(columns, rows)
    if not charged.any():
        return Exhibit("hosts", _QUESTION, f"None of {len(hosts)}: no exposed waiting is charged to any rank.", table)
    order = np.argsort(-total, kind="stable")
    names = list(hosts)
    worst = int(order[0])
    cause = CAUSE_IDS[int(charged[worst].argmax())]
    reading = (
        f"{names[worst]} ({ranks[worst]}): its ranks cost the others {format_us(total[worst] * 1e3)} of waiting per "
        f"step, {format_share(total[worst] / total.sum())} of all, mostly {CAUSES[cause].label}. "
        f"{_host_or_rank(opened, hosts[names[worst]], by_rank.sum(axis=1))}"
    )
    drawn = [i for i in order.tolist() if total[i] > 0][:MAX_HOSTS]
    chart = Stacked([names[i] for i in drawn], all_cause_parts(charged[drawn]), "ms of waiting per step and other rank")
    if len(drawn) < len(names):
        reading += f" Drawn: {len(drawn)} of {len(names)} hosts; the others cost less or nothing."
    return Exhibit("hosts", _QUESTION, reading, table, chart)


def _host_or_rank(opened: OpenRun, positions: list[int], charged_ms: Array) -> str:
    """A sentence on whether a finding names all ranks of the host, some, or none."""
    host_ranks = {opened.job.rank_ids[p] for p in positions}
    for number, finding in enumerate(opened.report.ranked_findings(), 1):
        named = sorted(host_ranks & set(finding.ranks))
        if not named:
            continue
        if len(named) == len(host_ranks) > 1:
            return f"Finding {number} ({finding.id}) names all of its ranks: look at the host."
        some = f"{format_ranks(named)} of its {len(host_ranks)}"
        of = some if len(host_ranks) > 1 else f"its only one, {format_ranks(named)}"
        return f"Finding {number} ({finding.id}) names {of}: look at that device or process first."
    most = max(positions, key=lambda p: float(charged_ms[p]))
    return f"No finding names a rank of it; most of it is rank {opened.job.rank_ids[most]}'s."
