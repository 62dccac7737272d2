"""Disagreements between the screens of one run: each check yields a sentence per disagreement."""

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.settings.curves import plan_buckets, plan_loader
from ddprof.analyzers.settings.knobs import BY_KEY, Setting
from ddprof.analyzers.settings.predict import predict
from ddprof.analyzers.settings.present import present
from ddprof.causes import CAUSES
from ddprof.errors import DdprofError
from ddprof.findings import culprit
from ddprof.report import phrases
from ddprof.report.comparison.compare import compare
from ddprof.report.fixes import fixes_file
from ddprof.units import format_range, format_ranks, format_share, format_us
from tests.consistency.screens import Screens, one_line
from tests.dashboard.onefile_reader import File, equal_tables

Check = Callable[[Screens], Iterator[str]]
SAME = 1e-6  # relative: what a float loses between two sums of one thing
TRANSFER = ("comm.bandwidth_bound", "comm.no_overlap", "comm.slow_link")  # findings of moving data, not of waiting
ROUNDED = 0.011  # relative: a number printed with three digits, or two


def _unsaid(words: str, places: dict[str, str], about: str = "") -> Iterator[str]:
    """The places that do not say the words."""
    yield from (f"{about}the {name} does not say {words!r}" for name, text in places.items() if words not in text)


def headline(s: Screens) -> Iterator[str]:
    """The headline is that of the first finding, in the same words on every screen."""
    told = phrases.headline(s.report)
    file = one_line((fixes_file(s.report) or told).replace("\n# ", " "))
    places = {"terminal": s.terminal, "Markdown": s.markdown, "Overview": s.pages["/"], "FIXES": file}
    yield from _unsaid(one_line(told), places | {"file": s.file_text})
    ranked, lead, sentence = s.report.ranked_findings(), s.lead, one_line(s.report.verdict.headline)
    if lead is None:
        if "fixing it saves" in sentence:
            yield f"the headline promises a gain, but no finding is above info: {sentence!r}"
        return
    if ranked[0] is not lead:
        yield f"the first finding is {ranked[0].id}, that of the headline {lead.id}"
    gain, _ = s.report.shown_gain(lead)
    for part in (one_line(lead.summary[1:]), f"saves {format_range(gain.value, gain.low, gain.high)} of each"):
        if part not in sentence:
            yield f"the headline does not say {part!r}: {sentence!r}"
    if format_ranks(lead.ranks) not in sentence.lower() and lead.ranks:
        yield f"the headline does not name {format_ranks(lead.ranks)}"
    rule = catalogue().get(lead.id)
    if rule and s.report.verdict.bound not in (rule.bound, "compute", "host" if rule.bound_of else rule.bound):
        yield f"bound by {s.report.verdict.bound}, but {lead.id} means {rule.bound}"


def label(s: Screens) -> Iterator[str]:
    """The label is the largest share of the step."""
    job, told = s.report.ledger.job, phrases.bound_word(s.report)
    largest = max((job.get(cause, 0.0) for cause in CAUSES), default=0.0)
    share = format_share(largest / job["wall_us"]) if largest else ""
    if s.report.failure is None and s.report.verdict.bound != "none" and share not in told:
        yield f"the label is {told!r}, the largest share of the step {share}"


def culprits(s: Screens) -> Iterator[str]:
    """Each page shows the ranks that the headline names, or says which finding names others; links lead to them."""
    named = culprit(s.report.ranked_findings(), s.report.steps.wall_us, s.report.steps.unprofiled_us)
    if named is None:
        return
    number, finding = named
    if number > 1 and f"finding {number} names {format_ranks(finding.ranks)}" not in s.report.verdict.headline:
        yield f"the headline does not name {format_ranks(finding.ranks)}"
    for name in ("/ rank-causes", "/ranks lateness", "/ranks blame", "/ranks critical", "/ranks pace"):
        exhibit = s.exhibits.get(name)
        shown = re.search(r"[Rr]ank (\d+)(?! \()", exhibit.reading) if exhibit else None
        if exhibit and shown and int(shown[1]) not in finding.ranks and finding.id not in exhibit.reading:
            yield f"{name} shows rank {shown[1]}, {finding.id} names {format_ranks(finding.ranks)}: {exhibit.reading}"
    for way in s.exhibits["/ rank-causes"].ways if "/ rank-causes" in s.exhibits else ():
        if (rank := dict(way.query).get("open")) and int(rank) not in finding.ranks:
            yield f"Overview leads to rank {rank}, {finding.id} names {format_ranks(finding.ranks)}"


def reconciled(s: Screens) -> Iterator[str]:
    """One line, alike on every screen, says why a finding's fix saves more or less than it costs."""
    for number, finding in enumerate(s.report.ranked_findings()):
        words = one_line(phrases.cost_words(s.report, finding))
        cost_us, gain_us = finding.waited_us or finding.lost_us, (finding.alone_us or finding.recoverable_us).value
        if not words and cost_us > 0 and abs(gain_us - cost_us) > 0.11 * cost_us:
            yield f"{finding.id} costs {format_us(cost_us)} and saves {format_us(gain_us)}, and no word says why"
        places = {"card": s.cards[number], "file": s.file_text}
        serious = s.report.severity_of(finding) != "info" and number < phrases.MAX_FINDINGS
        places |= {"terminal": s.terminal, "Markdown": s.markdown} if serious else {}
        yield from _unsaid(words, places, f"{finding.id}: ")


def offered(s: Screens) -> Iterator[str]:
    """The finding offered for an explanation is the first one."""
    explained = [c.rpartition(" ")[2] for c in s.commands if c.startswith("ddprof explain")]
    if explained != (wanted := [s.lead.id] if s.lead else []):
        yield f"explain is offered for {explained}, the headline is of {wanted}"


def gains(s: Screens) -> Iterator[str]:
    """A finding's gain is one number with one range, in the same words, and in the same regime, on every screen."""
    rows = s.exhibits["/findings findings"].sheet.rows
    what_if = {row[0]: row for row in s.exhibits["/what-if what-if"].sheet.rows}
    step_us = s.report.steps.wall_us
    for number, finding in enumerate(s.report.ranked_findings()):
        gain, item = finding.recoverable_us, s.document["findings"][number]
        if not gain.low * (1 - SAME) <= gain.value <= gain.high * (1 + SAME) + 1e-9:
            yield f"{finding.id}: {gain} does not lie in its range"
        of_json = tuple(item["recoverable_us"][k] for k in ("value", "low", "high"))
        if any(abs(a - b) > 0.001 for a, b in zip(of_json, (gain.value, gain.low, gain.high), strict=True)):
            yield f"{finding.id}: JSON {of_json}, report {gain}"
        told, _ = s.report.shown_gain(finding)
        cells = zip(rows[number][3:6], (told.value, told.low, told.high), strict=True)
        if any(abs(cell * 1e3 - us) > 1e-6 * max(us, 1) for cell, us in cells):
            yield f"{finding.id}: the table of findings says {rows[number]}"
        words = one_line(phrases.gain_words(s.report, finding))
        places = {"card": s.cards[number], "file": s.file_text}
        if number < phrases.MAX_FINDINGS:
            places |= {"terminal": s.terminal, "Markdown": s.markdown, "card of the Overview": s.first_cards[number]}
        yield from _unsaid(words, places, f"{finding.id}: ")
        change = ": ".join([finding.id, *(f"{fix.setting} -> {fix.suggested}" for fix in finding.fixes[:1])])
        after = what_if.get(change)
        if after is None:
            yield f"{finding.id}: no line {change!r} among the predictions"
            continue
        said_us = step_us - (finding.alone_us or gain).value  # a prediction is of its one change alone
        if abs(after[1] * 1e3 - said_us) > SAME * step_us and sum(c == change for c in what_if) == 1:
            yield f"{finding.id}: predictions say {after[1]:.3f} ms, the finding {said_us / 1e3:.3f} ms"


def settings(s: Screens) -> Iterator[str]:
    """A setting that a finding advises is the one that the plan advises, and its replay gives the finding's gain."""
    if not s.opened.has_traces or s.opened.pricer.error is None:
        return
    now = present(s.opened.measures, {})
    plans = {"num_workers": lambda: plan_loader(s.opened.pricer, now).advised_workers}
    plans["bucket_cap_mb"] = lambda: plan_buckets(s.opened.pricer, now).advised_mb
    for finding in s.report.ranked_findings():
        for fix in finding.fixes:
            try:
                wanted = float(fix.suggested)
            except ValueError:
                continue
            if fix.setting in plans:
                with suppress(DdprofError):
                    advised = float(plans[fix.setting]())
                    if math.isfinite(advised) and advised != wanted:
                        yield f"{finding.id}: {fix.setting} {fix.suggested} in the finding, {advised:g} in the plan"
            if fix.setting in BY_KEY and fix is finding.fixes[0]:
                try:
                    found = predict(s.opened.pricer, [Setting(fix.setting, fix.suggested)], now)
                except DdprofError:
                    continue
                gain = finding.recoverable_us
                if found.gain_us > gain.high * (1 + ROUNDED) or found.gain_us < gain.low * (1 - ROUNDED):
                    told, what_if = format_range(gain.value, gain.low, gain.high), format_us(found.gain_us)
                    yield f"{finding.id}: {fix.setting}={fix.suggested} gains {what_if} by what-if, {told} as told"


def plans(s: Screens) -> Iterator[str]:
    """A plan's promise equals the what-if's prediction for its value."""
    if not s.opened.has_traces or s.opened.pricer.error is None:
        return
    prices, now = s.opened.pricer, present(s.opened.measures, {})
    for key, made in (("num_workers", plan_loader), ("bucket_cap_mb", plan_buckets)):
        try:
            plan: Any = made(prices, now)
            advised = plan.advised_workers if key == "num_workers" else plan.advised_mb
            found = predict(prices, [Setting(key, f"{advised:g}")], now)
        except DdprofError:
            continue
        by_plan, replayed = (tuple(getattr(p, k) for k in ("low_us", "high_us")) for p in (plan, found))
        pairs = zip((found.after_us, *replayed), (plan.advised_us, *by_plan), strict=True)
        if any(abs(a - b) > SAME * plan.step_us for a, b in pairs):
            yield f"{key}={advised:g}: {found.after_us:.1f} {replayed} us by what-if, {plan.advised_us:.1f} {by_plan}"


def ranges(s: Screens) -> Iterator[str]:
    """One change has one range as a finding and as a what-if, and no range reaches below compute."""
    if not s.opened.has_traces or s.opened.pricer.error is None:
        return
    prices, now, step_us = s.opened.pricer, present(s.opened.measures, {}), s.report.steps.wall_us
    for row in s.report.what_if:
        if not 0 < row.low_us <= row.predicted_step_us * (1 + SAME) + 1e-9:
            yield f"{row.change}: {row.predicted_step_us:.1f} us may be {row.low_us:.1f} us"
    for offer in s.opened.offers:
        if offer.suggested is None or offer.because is None:
            continue
        finding = s.report.ranked_findings()[offer.because]
        said, after = finding.alone_us or finding.recoverable_us, predict(prices, [offer.suggested], now)
        floor_us = min(prices.floor_us(after.changes), after.after_us)
        if after.low_us < floor_us * (1 - SAME):
            yield f"{offer.suggested}: {after.low_us:.1f} us is less than the {floor_us:.1f} us that remain"
        replayed = (after.gain_us, step_us - after.high_us, step_us - after.low_us)
        if s.opened.pricer.told_price(after.changes) is None:
            continue  # another change with the same purpose
        if any(abs(a - b) > SAME * step_us for a, b in zip(replayed, (said.value, said.low, said.high), strict=True)):
            yield f"{finding.id}: {said} in the finding, {replayed} of {offer.suggested} by what-if"


def promises(s: Screens) -> Iterator[str]:
    """The step within reach is the best prediction, a what-if of nothing the report's step, and the replay near it."""
    if (s.report.replay.error or 0.0) > 1:
        yield f"the replay misses the step by {s.report.replay.error}"
    step_us, after = s.report.steps.wall_us, [w.predicted_step_us for w in s.report.what_if]
    if after and min(after) < step_us and f"best step within reach {format_us(min(after))}" not in s.pages["/"]:
        yield f"Overview: no step of {format_us(min(after))} within reach"
    if s.opened.has_traces and s.opened.pricer.error is not None:
        before = predict(s.opened.pricer, [], present(s.opened.measures, {})).before_us
        if abs(before - step_us) > SAME * step_us:
            yield f"the what-if begins at {before:.1f} us, the report's step is {step_us:.1f} us"


def compared(s: Screens) -> Iterator[str]:
    """Compared with itself a run has not changed, and its numbers are those of the report."""
    if not s.report.steps.wall_us > 0:
        return
    comparison = compare(s.report, s.report)
    if comparison.gone or comparison.new or comparison.differences or comparison.step.outcome not in ("same", "noise"):
        yield f"compared with itself: {comparison.step.outcome}, gone {comparison.gone}, new {comparison.new}"
    for delta in filter(None, (comparison.traced, *comparison.causes)):
        wanted = s.report.steps.wall_us if delta is comparison.traced else s.report.ledger.job[delta.name]
        if delta.before_us != wanted:
            yield f"{delta.name} is {delta.before_us:.1f} us on Compare, {wanted:.1f} us in the report"


def onefile(s: Screens) -> Iterator[str]:
    """The file has the tables of the dashboard and the JSON document."""
    try:
        equal_tables(File(s.file), s.view)
    except AssertionError as different:
        yield f"the file's tables: {str(different).splitlines()[0] if str(different) else 'not the same'}"
    if json.loads(File(s.file).scripts["report"]) != json.loads(json.dumps(s.document)):
        yield "the document in the file is not that of --format json"


def blame(s: Screens) -> Iterator[str]:
    """A rank costs the others no less than its fix saves; costly ranks are named, or words say why."""
    found = s.exhibits.get("/ranks blame")
    if found is None:
        return
    step_us = s.report.steps.wall_us
    charged = {row[0]: row[-1] * 1e3 for row in found.sheet.rows}
    for finding in s.report.ranked_findings():
        if not finding.ranks or s.report.severity_of(finding) == "info":
            continue
        mine = sum(charged.get(f"rank {rank}", 0.0) for rank in finding.ranks)
        if mine < finding.recoverable_us.low * (1 - ROUNDED) and finding.id not in found.reading:
            yield f"{finding.id} saves {format_us(finding.recoverable_us.low)} or more, Ranks charges {format_us(mine)}"
    match = re.match(r"Rank (\d+) costs each other rank", found.reading)
    if match is None:
        return
    rank, named = int(match[1]), {r for f in s.report.ranked_findings() for r in f.ranks}
    if ("No finding names it" in found.reading) == (rank in named):
        cost = format_us(charged[f"rank {rank}"])
        yield f"rank {rank} costs {cost} of {format_us(step_us)}, named: {rank in named}: {found.reading}"


def critical(s: Screens) -> Iterator[str]:
    """The critical path lies on the rank that the leading finding names, or the page says why not."""
    found = s.exhibits.get("/ranks critical")
    match = re.search(r"runs (\S+) % of the time on rank (\d+)", found.reading) if found else None
    if found is None or match is None or s.lead is None or not s.lead.ranks:
        return
    if int(match[2]) not in s.lead.ranks and s.lead.id not in found.reading:
        yield f"the path lies on rank {match[2]} ({match[1]} %), {s.lead.id} names {format_ranks(s.lead.ranks)}"


def sums(s: Screens) -> Iterator[str]:
    """The parts of each table sum to its total."""
    ledger = s.report.ledger
    for name, row in (("job", ledger.job), *ledger.per_rank.items()):
        parts, wall = sum(row.get(c, 0.0) for c in CAUSES), row.get("wall_us", 0.0)
        if abs(parts - wall) > 1e-3 * max(wall, 1e-9):
            yield f"ledger of {name}: parts {parts:.1f} us, step {wall:.1f} us"
    if ledger.job and s.report.steps.count:
        wall = ledger.job["wall_us"]
        if abs(wall - s.report.steps.wall_us) > ROUNDED * wall and format_us(wall) != format_us(s.report.steps.wall_us):
            yield f"the ledger's step is {format_us(wall)}, the report's {format_us(s.report.steps.wall_us)}"
    for name, exhibit in s.exhibits.items():
        columns = exhibit.sheet.columns
        total = next((i for i, c in enumerate(columns) if c.startswith("all (")), None)
        if total is None:
            continue
        parts_at = [i for i, c in enumerate(columns) if i != total and c.endswith(columns[total].removeprefix("all "))]
        for row in exhibit.sheet.rows:
            parts = sum(row[i] or 0.0 for i in parts_at if not isinstance(row[i], str))
            if abs(parts - row[total]) > 1e-6 * max(1.0, row[total]):
                yield f"{name}: row {row[0]} does not sum to its total"


def steps(s: Screens) -> Iterator[str]:
    """All pages count the same steps and the same typical step."""
    if s.opened.has_traces and s.opened.step_count != s.report.steps.count:
        yield f"pages number {s.opened.step_count} steps, the report has {s.report.steps.count}"
    dots, causes = s.exhibits.get("/ steps"), s.exhibits.get("/ranks step-causes")
    medians = [re.search(r"[Mm]edian(?: of \d+ steps is)? ([\d.]+ \S?s)", e.reading) for e in (dots, causes) if e]
    said = {m[1] for m in medians if m}
    if len(said) > 1:
        yield f"median step: {' and '.join(sorted(said))}"


def inputs(s: Screens) -> Iterator[str]:
    """Pages of a cause do not deny what the findings say of it."""
    serious = [f for f in s.report.ranked_findings() if s.report.severity_of(f) != "info"]
    loader = s.exhibits.get("/host loader")
    if loader and loader.reading.startswith("No:"):
        for f in serious:
            if f.id in ("input.starved", "input.straggler"):
                yield f"{f.id} leads to {format_us(f.recoverable_us.value)}; Input & host: {loader.reading}"
    groups = s.exhibits.get("/communication groups")
    if groups and s.lead and s.lead.id in TRANSFER and "mostly the peers" in groups.reading:
        yield f"headline {s.lead.id}; Communication: {groups.reading}"
    memory = s.exhibits.get("/memory memory")
    if memory and "Not known" in memory.reading and any(f.id == "memory.headroom" for f in serious):
        yield f"memory.headroom found; Memory: {memory.reading}"
    pipeline = s.exhibits.get("/pipeline pipeline")
    if pipeline and not pipeline.sheet.rows and any(f.id.startswith("pipeline") for f in serious):
        yield f"{s.lead and s.lead.id}; Pipeline: {pipeline.reading}"


def outcomes(s: Screens) -> Iterator[str]:
    """A cause is found, not found or not judged, and one of them only."""
    found, checked = {f.id for f in s.report.findings}, set(s.report.checked)
    judged = {a.id for a in s.report.abstentions}
    for a, b, words in ((found, checked, "found and not found"), (checked, judged, "not found and not judged")):
        if a & b:
            yield f"{words}: {', '.join(sorted(a & b))}"


def pace(s: Screens) -> Iterator[str]:
    """The rank that is named slow for the same work is the one that a finding of that names."""
    found = s.exhibits.get("/ranks pace")
    told = found.reading if found else ""
    match = re.search(r"Rank (\d+) takes (\S+) (?:% longer than|as long as) its typical peer for the same (.+)\.", told)
    for f in s.report.ranked_findings() if match else ():
        wanted = {"straggler.compute": "kernels", "straggler.host": "host work"}.get(f.id)
        serious = f.ranks and s.report.severity_of(f) != "info"
        if match and wanted == match[3] and serious and int(match[1]) not in f.ranks:
            yield f"{f.id} names {format_ranks(f.ranks)}; Ranks: {told}"


def unknowns(s: Screens) -> Iterator[str]:
    """Unrecorded values are never shown as an amount."""
    for path, text in {**s.pages, "terminal": s.terminal, "markdown": s.markdown}.items():
        for wrong in (r"gain 0 µs", r"\bnan\b", r"\binf\b", r"(?<!\()None\b(?! of)"):
            if at := re.search(wrong, text):
                yield f"{path}: {text[max(0, at.start() - 50) : at.end() + 30]!r}"


_OF_FINDINGS = (headline, label, culprits, reconciled, offered, gains, settings, blame, critical, outcomes)
_OF_NUMBERS = (plans, ranges, promises, compared, onefile, sums, steps, inputs, pace, unknowns)
CHECKS: dict[str, Check] = {check.__name__: check for check in (*_OF_FINDINGS, *_OF_NUMBERS)}
