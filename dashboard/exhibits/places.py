"""Rank against rank, or host against host: who waits for whom, the bytes between two, and their speed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.job.charged import waited_for_us
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.traffic.matrix import OUTSIDE, Pairs, pairs_of
from ddprof.analyzers.job.whole_run.hardware import gpu_links
from ddprof.causes import CAUSE_IDS, CAUSES
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, following, matrix, sheet
from ddprof.dashboard.exhibits.parts.numbers import FEW_LINES, condensed, readable_times
from ddprof.dashboard.figures.charts import Heat, Stacked, all_cause_parts
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.hardware import device_link
from ddprof.report.phrases import LEAST_SHARE, clean
from ddprof.tables import Array
from ddprof.units import format_bytes, format_ranks, format_rate, format_share, format_us

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


MOST_RANKS = 64  # in a matrix that can be read; of more ranks the hosts are compared
MIB = 2**20
LEAST_COLUMN = 0.01  # of the longest wait: a rank waited for less is no column among many
ALIKE = 0.05  # of a rate: groups that do the same differ by a few per cent
_WAITS, _SHARED = "Who waits for whom?", "Which ranks communicate with which, and how much?"
_SENT, _RATE = "Which rank sends to which?", "Between which ranks is communication slow?"


@dataclass(frozen=True)
class MatrixLines:
    """Lines of a matrix: ranks or hosts. `blocks`: the host of each, "" where hosts are not distinguished."""

    names: tuple[str, ...]
    unit_of: Array
    blocks: tuple[str, ...]
    are_hosts: bool


def pair_exhibits(view: View) -> Iterator[Exhibit]:
    """The matrices; one sentence with too many ranks to compare and no hosts."""
    job, units = view.opened.job, _units(view)
    if len(job.rank_ids) < 2:
        return
    if units is None:
        reading = (
            f"The run has {len(job.rank_ids)} ranks and does not say which host each is on: choose up to {MOST_RANKS} "
            "ranks above to compare them."
        )
        yield Exhibit("waits", _WAITS, reading, sheet(("waits",), []), follows=("ranks",))
        return
    pairs = pairs_of(job, units.unit_of, len(units.names))
    exhibits = [_waits(view, units, pairs), _shared(units, pairs), _rate(job, units, pairs)]
    if np.isfinite(pairs.sent_bytes).any():
        exhibits.insert(2, _sent(units, pairs))
    yield from (following(exhibit, "ranks") for exhibit in exhibits)


def _units(view: View) -> MatrixLines | None:
    """Ranks while their labels are readable, else hosts; None where those are not known."""
    job = view.opened.job
    hosts = hosts_of(view.opened)
    host_of = {position: host for host, positions in hosts.items() for position in positions}
    chosen = [position for position, rank in enumerate(job.rank_ids) if view.shows(rank)]
    unit_of = np.full(len(job.rank_ids), OUTSIDE, np.int64)
    if len(chosen) <= MOST_RANKS:
        place = {position: at for at, positions in enumerate(hosts.values()) for position in positions}
        chosen.sort(key=lambda position: (place.get(position, -1), position))
        unit_of[chosen] = np.arange(len(chosen))
        blocks = tuple(host_of.get(position, "") if len(hosts) > 1 else "" for position in chosen)
        return MatrixLines(tuple(f"rank {job.rank_ids[p]}" for p in chosen), unit_of, blocks, False)
    if len(hosts) < 2:
        return None
    names = [host for host, positions in hosts.items() if any(p in set(chosen) for p in positions)]
    for position in chosen:
        if position in host_of:
            unit_of[position] = names.index(host_of[position])
    return MatrixLines(tuple(names), unit_of, ("",) * len(names), True)


def _waits(view: View, units: MatrixLines, pairs: Pairs) -> Exhibit:
    values = pairs.waits_us / 1e3
    table = matrix(("waits (ms/step)", *(f"for {name}" for name in units.names)), units.names, values)
    if not values.any():
        reading = "None of these makes others wait."
        return Exhibit("waits", _WAITS, reading, sheet(table.columns, []))
    line, column = _largest(values)
    whose = ", mean over its ranks" if units.are_hosts else ""
    reading = (
        f"{_capital(units.names[line])} waits longest for {units.names[column]}: "
        f"{format_us(values[line, column] * 1e3)} per step. Rows wait for columns: exposed time{whose}."
    )
    step_ms = view.opened.measures.step_us / 1e3
    times, unit, critical = readable_times(values, step_ms)
    times = np.where(values >= LEAST_SHARE * step_ms, times, np.nan)  # nothing stands where nobody waits
    if len(times) <= FEW_LINES or len(set(units.blocks)) > 1:
        return Exhibit("waits", _WAITS, reading, table, _heat(units, times, unit, critical, "waited for"))
    most = np.nan_to_num(times).max(axis=0)
    columns = np.flatnonzero(most >= LEAST_COLUMN * most.max())
    lines, names = condensed(np.nan_to_num(times[:, columns]), list(units.names))
    chart = Heat(lines, [units.names[c] for c in columns], names, unit, critical, axis="waited for")
    return Exhibit("waits", _WAITS, reading, table, chart)


def _shared(units: MatrixLines, pairs: Pairs) -> Exhibit:
    values = pairs.shared_bytes / MIB
    question = _SHARED.replace("ranks", "hosts") if units.are_hosts else _SHARED
    table = matrix(("MiB/step", *units.names), units.names, values)
    if not np.isfinite(values).any():
        reading = "No collective of two of these ranks has a recorded size."
        return Exhibit("shared", question, reading, sheet(table.columns, []))
    pairs_mib = values[np.isfinite(values) & ~np.eye(len(values), dtype=bool)]
    if len(pairs_mib) > 2 and pairs_mib.min() > (1 - ALIKE) * pairs_mib.max():
        reading = f"All pairs are alike: {format_bytes(float(pairs_mib.max()) * MIB)} per step in common collectives."
        alike = sheet(("pairs", "least (MiB)", "most (MiB)"), [(len(pairs_mib) // 2, pairs_mib.min(), pairs_mib.max())])
        return Exhibit("shared", question, reading, alike)
    line, column = _largest(values)
    reading = (
        f"{_both(units, line, column)} take part in collectives of "
        f"{format_bytes(values[line, column] * MIB)} per step, the most. Cells count collectives that both are in, "
        "not the bytes sent from one to the other."
    )
    chart = _heat(units, values, "MiB per step", float(np.nanmax(values)), "", is_amount=True)
    return Exhibit("shared", question, reading, table, chart)


def _sent(units: MatrixLines, pairs: Pairs) -> Exhibit:
    values = pairs.sent_bytes / MIB
    table = matrix(("sends (MiB/step)", *(f"to {name}" for name in units.names)), units.names, values)
    line, column = _largest(values)
    reading = (
        f"{_capital(units.names[line])} sends most, {format_bytes(values[line, column] * MIB)} per step to "
        f"{units.names[column]}. Rows send, columns receive; point-to-point messages only."
    )
    chart = _heat(units, values, "MiB per step", float(np.nanmax(values)), "receiver", is_amount=True)
    return Exhibit("sent", _SENT, reading, table, chart)


def _rate(job: JobFacts, units: MatrixLines, pairs: Pairs) -> Exhibit:
    values = pairs.rate_gbps
    question = _RATE.replace("ranks", "hosts") if units.are_hosts else _RATE
    table = matrix(("GB/s", *units.names), units.names, values)
    if not np.isfinite(values).any():
        reading = "Message sizes were not recorded, so their speed is unknown."
        return Exhibit("rates", question, reading, sheet(table.columns, []))
    stated = _stated_gbps(job)
    reference = stated or float(np.nanmax(values))
    line, column = _largest(-values)
    slow = float(values[line, column])
    count, is_alike = int(np.triu(np.isfinite(values)).sum()), slow > (1 - ALIKE) * float(np.nanmax(values))
    pair = f"{_both(units, line, column)} are slowest, {format_rate(slow * 1e9)}"
    if is_alike:
        who = f"All pairs are within {format_share(ALIKE)}:" if count > 1 else f"{_both(units, line, column)} reach"
        pair = f"{who} {format_rate(slow * 1e9)} on average"
    against = f"the {format_rate(stated * 1e9)} of NVLink in one direction" if stated else "the fastest pair"
    unknown = "" if stated else " The rate of the link itself is not recorded."
    below = f", {format_share(max(0.0, 1 - slow / reference))} below {against}" if stated or not is_alike else ""
    reading = f"{pair}{below}. Bus bandwidth; waiting is left out.{unknown}"
    if slow > (1 - ALIKE) * reference:  # nothing to tell apart
        row = (count, slow, float(np.nanmax(values)))
        return Exhibit("rates", question, reading, sheet(("pairs", "slowest (GB/s)", "fastest (GB/s)"), [row]))
    missing = np.maximum(0.0, 100 * (1 - values / reference))
    chart = _heat(units, missing, f"% below {format_rate(reference * 1e9)}", 100.0, "")
    return Exhibit("rates", question, reading, table, chart)


def _stated_gbps(job: JobFacts) -> float | None:
    """The stated rate of the links between devices, where all ranks are on one host and all its pairs use NVLink."""
    kinds = {kind for facts in job.ranks for kind in gpu_links(facts).values()}
    hosts = {facts.identity.host for facts in job.ranks}
    if not kinds or len(hosts) > 1 or not all(kind.startswith("NV") for kind in kinds):
        return None
    rate = device_link(job.ranks[0].device.name)
    return rate / 1e9 if rate else None


def _heat(units: MatrixLines, values: Array, unit: str, critical: float, axis: str, is_amount: bool = False) -> Heat:
    """The matrix; an empty row before each host, named after it."""
    short = [name.removeprefix("rank ") for name in units.names]
    if len(set(units.blocks)) < 2:
        return Heat(values, short, list(units.names), unit, critical, axis=axis, is_amount=is_amount)
    starts = [i for i, host in enumerate(units.blocks) if i == 0 or host != units.blocks[i - 1]]
    parted = np.insert(np.insert(values, starts, np.nan, axis=0), starts, np.nan, axis=1)
    hosts = [units.blocks[i] or "host not recorded" for i in starts]
    columns, lines = (np.insert(np.array(names, object), starts, hosts).tolist() for names in (short, units.names))
    return Heat(parted, columns, lines, unit, critical, axis=axis, is_amount=is_amount)


def _largest(values: Array) -> tuple[int, int]:
    line, column = np.unravel_index(int(np.nanargmax(values)), values.shape)
    return int(line), int(column)


def _both(units: MatrixLines, line: int, column: int) -> str:
    """Subject of a sentence on a pair; on the diagonal, which only hosts have, ranks of one host."""
    if line == column:
        return f"Ranks of {units.names[line]}"
    return f"{_capital(units.names[line])} and {units.names[column]}"


def _capital(name: str) -> str:
    return name[0].upper() + name[1:] if name.startswith("rank ") else name
