"""A report without names: hosts, paths, file and event names become keyed hashes, the same name the same hash.

Numbers, ranks, causes, finding ids and public names (PyTorch operators, vendor kernels and collectives) stay, so the
verdict stays what it was. Free text is searched for every secret that the report knows and for anything that looks like
a path, an address or a file name.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace

from ddprof.findings import Evidence, Finding, Fix
from ddprof.report.model import ClockInfo, Report
from ddprof.report.step_causes import step_causes

_PUBLIC = re.compile(
    r"(aten|c10d|autograd|nccl|gloo|torch|cuda|hip|cub|cudnn|cublas|cutlass|triton|flash|fmha|ampere|sm\d|volta|turing|hopper"
    r"|void at::|at::|ProfilerStep|DistributedDataParallel|FullyShardedDataParallel|DataLoader|enumerate\(DataLoader\)"
    r"|Memcpy|Memset|Optimizer|all_reduce|allreduce|all_gather|allgather|reduce_scatter|broadcast|barrier|send|recv|record_param_comms)",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[\w.~@+-]*[/\\])+[\w.@+-]+")
_FILE = re.compile(
    r"\b[\w@+-][\w.@+-]*\.(?:py|json|gz|pt|pth|zip|tar|sqlite|pickle|pkl|yaml|yml|toml|parquet|html|txt|log)\b"
)
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[\w.+-]+@[\w-]+\.[\w.-]+\b")
_RANK = re.compile(r"rank \d+")
_PROSE = frozenset(
    {"host", "device", "read", "write", "send", "recv", "forward", "backward", "input", "output", "start", "end", "CPU"}
    | {
        "GPU",
        "I",
        "O",
        "s",
        "step",
        "steps",
        "rank",
        "sample",
        "samples",
        "us",
        "ms",
        "ns",
        "B",
        "KB",
        "MB",
        "GB",
        "TB",
    }
    | {"checkpoint", "logging", "calls", "bytes", "n"}
    | {"KiB", "MiB", "GiB", "TiB", "GFLOP", "TFLOP"}
)
_HASH_CHARACTERS = 8
_LEAST_SECRET = 3  # characters


class Redaction:
    """Hashes the names of one report; the same name gets the same hash wherever it stands.

    `key`: default DDPROF_REDACT_KEY, else random: two reports cannot be linked. `names`: further secrets -> their kind.
    """

    def __init__(self, report: Report, key: bytes | None = None, names: Mapping[str, str] | None = None) -> None:
        self._secret = key or os.environ.get("DDPROF_REDACT_KEY", "").encode() or secrets.token_bytes(16)
        self._source = report
        self.text = _scrubber(report, self._secret, names or {})

    def event(self, name: str) -> str:
        """A name of an event, kept where it is public (operators, vendor kernels, collectives)."""
        return name if _PUBLIC.match(name) else _alias("event", name, self._secret)

    def setting(self, value: str) -> str:
        """A captured setting, kept where it is a number, a switch or public."""
        plain = value in ("True", "False", "None", "") or value.replace(".", "", 1).lstrip("-").isdigit()
        return value if plain or _PUBLIC.match(value) else _alias("setting", value, self._secret)

    def report(self) -> Report:
        """The report with its names hashed."""
        report, scrub, secret = self._source, self.text, self._secret
        run, clock = report.run, report.clock
        return replace(
            report,
            run=replace(
                run,
                name=_alias("run", run.name, secret) if run.name else "",
                hosts={rank: _alias("host", host, secret) for rank, host in run.hosts.items()},
                paths=tuple(_alias("path", path, secret) for path in run.paths),
            ),
            clock=ClockInfo({scrub(host): value for host, value in clock.hosts.items()}, scrub(clock.method)),
            health=tuple(replace(h, issue=scrub(h.issue), effect=scrub(h.effect)) for h in report.health),
            findings=tuple(_finding(f, self) for f in report.findings),
            what_if=tuple(replace(w, change=scrub(w.change)) for w in report.what_if),
            verdict=replace(report.verdict, headline=scrub(report.verdict.headline)),
            abstentions=tuple(replace(a, reason=scrub(a.reason)) for a in report.abstentions),
            ledger=replace(report.ledger, per_step=step_causes(report)),  # made from the tables, which hold names
            tables={},
        )


def redacted(report: Report, key: bytes | None = None) -> Report:
    """The report with its names hashed."""
    return Redaction(report, key).report()


def _finding(finding: Finding, redaction: Redaction) -> Finding:
    scrub = redaction.text
    return replace(
        finding,
        summary=scrub(finding.summary),
        evidence=tuple(_evidence(e, redaction) for e in finding.evidence),
        fixes=tuple(_fix(f, scrub) for f in finding.fixes),
    )


def _evidence(evidence: Evidence, redaction: Redaction) -> Evidence:
    event = None if evidence.event is None else redaction.event(evidence.event)
    return replace(evidence, text=redaction.text(evidence.text), event=event)


def _fix(fix: Fix, scrub: Callable[[str], str]) -> Fix:
    """`source` cites public documentation and stays."""
    return replace(
        fix,
        suggested=scrub(fix.suggested),
        why=scrub(fix.why),
        current=None if fix.current is None else scrub(fix.current),
        patch=None if fix.patch is None else scrub(fix.patch),
    )


def _scrubber(report: Report, secret: bytes, names: Mapping[str, str]) -> Callable[[str], str]:
    """A function that hashes, in any text, the secrets this report knows and whatever looks like one."""
    known = dict.fromkeys((*report.run.hosts.values(), *report.clock.hosts), "host")
    known.update(dict.fromkeys(report.run.paths, "path"))
    known.update({path.replace("\\", "/").rsplit("/", 1)[-1]: "path" for path in report.run.paths})
    if report.run.name:
        known[report.run.name] = "run"
    for finding in report.findings:
        known.update({e.event: "event" for e in finding.evidence if e.event and not _PUBLIC.match(e.event)})
    known.update(names)
    # Where no host is known clocks are named after their ranks, and ranks stay.
    known = {name: kind for name, kind in known.items() if name and not _RANK.fullmatch(name)}
    # A short name hits ordinary words inside a sentence: it is a secret only where it is the whole text.
    longest = sorted((name for name in known if len(name) >= _LEAST_SECRET), key=len, reverse=True)
    pattern = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in longest)) if longest else None

    def scrub(text: str) -> str:
        if text in known:
            return _alias(known[text], text, secret)
        if pattern is not None:
            text = pattern.sub(lambda m: _alias(known[m.group()], m.group(), secret), text)
        text = _PATH.sub(lambda m: m.group() if _is_prose(m.group()) else _alias("path", m.group(), secret), text)
        text = _FILE.sub(lambda m: _alias("file", m.group(), secret), text)
        return _ADDRESS.sub(lambda m: _alias("address", m.group(), secret), text)

    return scrub


def _is_prose(text: str) -> bool:
    """Ratios ("3/4", "GB/s") and the word pairs of the rules' own texts are not paths; any other slash makes one."""
    return all(part in _PROSE or part.replace(".", "").isdigit() for part in text.split("/"))


def _alias(kind: str, name: str, secret: bytes) -> str:
    digest = hmac.new(secret, f"{kind}\0{name}".encode(), "sha256").hexdigest()
    return f"{kind}-{digest[:_HASH_CHARACTERS]}"
