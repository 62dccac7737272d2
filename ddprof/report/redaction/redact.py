"""A report without private names: each becomes a keyed hash, the same name the same hash.

Numbers, ranks, causes, finding ids, ddprof's words and public names (PyTorch operators, vendor kernels and collectives)
stay, so the verdict stays what it was. Everything else is hidden, in every field of the report and in the keys of its
mappings; no list of fields can be incomplete.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, TypeVar

from ddprof.causes import CAUSE_IDS
from ddprof.findings import Finding
from ddprof.model import RankTrace
from ddprof.report.model import Failure, Report, step_causes
from ddprof.tables import Table

# Redaction of sentences: numbers and the words of ddprof's own texts are public, everything else is hidden.
#
# A report's sentences are ddprof's, with names from the run in them. Any other word is taken for such a name, so that
# text of a new rule or a foreign file is hidden by default.

# Words joined by signs are one thing: all-reduce, torch.compile, GB/s; a name of a host or a file is one too.
COMPOUND = re.compile(r"[\w$\u0080-\U0010ffff]+(?:[-./\\@+~]+[\w$\u0080-\U0010ffff]+)*")
JOINT = re.compile(r"[-./\\@+~]+")
_SIGNS = re.compile(r"[×·±→←–—…µ≥≤≈²°◀▶✓•“”‘’ −]+")
_SLASHED = ("/", "\\")
# Of these pairs and triples a slash makes no path: GB/s, host/device, checkpoint/logging.
_PAIRED = frozenset({
    "host", "device", "read", "write", "send", "recv", "forward", "backward", "input", "output", "start", "end", "step",
    "steps", "rank", "sample", "samples", "checkpoint", "logging", "calls", "bytes", "n", "CPU", "GPU", "I", "O", "s",
    "us", "ms", "ns", "B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB", "GFLOP", "TFLOP",
})  # fmt: skip
_SUFFIXES = frozenset({
    "py", "json", "gz", "pt", "pth", "zip", "tar", "sqlite", "pickle", "pkl", "yaml", "yml", "toml", "parquet", "html",
    "txt", "log", "jsonl", "csv", "bin", "sh", "so", "local", "internal", "com", "net", "org", "io", "lan",
})  # fmt: skip
# A line of a script as findings name it: train.py:88 evaluate(). All of it is hidden but for the line's number, even
# where file or function are words of ddprof's own.
_SCRIPT_LINE = re.compile(
    r"(?<![^\s,;:])(?P<file>[^\s,;:]+):(?P<line>\d+) (?P<function><\w+>|[\w.$\u0080-\U0010ffff]+(?=\(\)))"
)
_NETWORK = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")  # an IPv4 address
_PLAIN_NUMBER = re.compile(r"\d{1,15}(?:e\d{1,3})?")
_MEASURE = re.compile(r"\d{1,9}(?:x|×|ns|µs|us|ms|s|min|h|B|[KMGT]i?B|[KMGT]Hz|[MGT]FLOPs?|GT|Gb|k|W|C|V)")


def hidden(text: str, alias: Callable[[str], str]) -> str:
    """The text with everything except numbers and ddprof's words replaced by its alias."""
    return COMPOUND.sub(lambda m: m.group() if _is_plain(m.group()) else alias(m.group()), text)


def lines_hidden(text: str, alias: Callable[[str, str], str]) -> str:
    """The text with files and functions of the user's script replaced by `alias(kind, name)`."""

    def hide(match: re.Match[str]) -> str:
        file, function = match["file"], match["function"]
        name = function if function.startswith("<") else alias("function", function)
        return f"{alias('file', file)}:{match['line']} {name}"

    return _SCRIPT_LINE.sub(hide, text)


def kind_of(compound: str) -> str:
    """The kind of a compound: a path, a file, an address, or another name."""
    if any(slash in compound for slash in _SLASHED):
        return "path"
    if "@" in compound or _NETWORK.fullmatch(compound):
        return "address"
    return "file" if compound.rpartition(".")[2].lower() in _SUFFIXES and "." in compound else "name"


def _is_plain(compound: str) -> bool:
    if compound.lower() in _vocabulary():
        return True
    kind = kind_of(compound)
    if kind != "name":
        parts = compound.split("/")
        return kind == "path" and all(part in _PAIRED or part.replace(".", "").isdecimal() for part in parts)
    pieces = [piece for part in JOINT.split(compound) for piece in _SIGNS.split(part) if piece]
    numbers = [bool(_PLAIN_NUMBER.fullmatch(piece) or _MEASURE.fullmatch(piece)) for piece in pieces]
    if all(numbers):
        return True
    # A number behind a word, as in rank-3 or kernel.17, makes a name of it; before a word it counts: 4-way, 16-bit.
    if any(later and not before for before, later in pairwise(numbers)):
        return False
    words = (piece for piece, number in zip(pieces, numbers, strict=True) if not number)
    return all(word.lower() in _vocabulary() or is_public(word) for word in words)


@cache
def _vocabulary() -> frozenset[str]:
    """Words and compounds of ddprof's texts in lower case, as collected by `.ci/prose_words.py`."""
    words = files("ddprof.report.redaction").joinpath("prose_words.txt").read_text("utf-8")
    return frozenset(words.splitlines())


# Public names of a trace: those made only of words of PyTorch and the vendors' libraries.
#
# A name is split into identifiers, so that a team's kernel is hidden inside a public one's template arguments.

# Identifiers; any letter that is not ASCII is part of one, and so is `$` (Java, Triton).
PIECE = re.compile(r"[\w$\u0080-\U0010ffff]+")
LEAST_WORD = 3  # characters of a word that makes single letters beside it (gemm_tn_n) public
MAX_SINGLES = 2  # single letters in an identifier: more would spell something
_DTYPE = r"(?:bf|tf|fp|[fsuie])(?:4|8|16|32|64)(?!\d)"
_NUMBER = re.compile(rf"\d{{1,12}}(?:x\d{{1,6}})*(?:x|ul?|l)?|{_DTYPE}")  # 128x64, 5x, 4096ul, bf16
_WORDS = re.compile(rf"c10d?|{_DTYPE}|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+(?:x\d+)*(?:x|ul?)?(?![a-z])|\d+")
# Words that names of PyTorch, CUDA, ROCm and their libraries are made of, in lower case. Operators and autograd nodes:
# the words of all that torch 2.13 registers. Kernels, runtime calls, template arguments: those of cuBLAS, cuDNN,
# CUTLASS, CUB, NCCL, FBGEMM, Triton and at::native, as their public sources spell them.
KERNEL_WORDS = frozenset(files("ddprof.report.redaction").joinpath("kernel_words.txt").read_text("utf-8").split())


def renamed(name: str, alias: Callable[[str], str]) -> str:
    """The name with every private identifier replaced by its alias."""
    return PIECE.sub(lambda m: m.group() if is_public(m.group()) else alias(m.group()), name)


def is_public(identifier: str) -> bool:
    """True where every word of an identifier is public: ampere_sgemm_128x64_tn, AddmmBackward0, ProfilerStep."""
    words = [word for part in re.split(r"[_$]+", identifier) for word in _split(part)]
    public = [word for word in words if word.lower() in KERNEL_WORDS]
    singles = sum(len(word) == 1 and word.isalpha() for word in words)
    numbers = sum(_NUMBER.fullmatch(word) is not None for word in words)
    if len(public) + singles + numbers < len(words):
        return False
    return singles == 0 or (singles <= MAX_SINGLES and (len(words) == 1 or any(len(w) >= LEAST_WORD for w in public)))


def _split(part: str) -> list[str]:
    """Words of an identifier part, by case and digits; non-ASCII text is one word, which is never public."""
    if part.lower() in KERNEL_WORDS or not part.isascii():
        return [part]
    return _WORDS.findall(part)


_RANK = re.compile(r"rank \d+")
_HASH_CHARACTERS = 8
_LEAST_SECRET = 3  # characters
Something = TypeVar("Something")


class _Aliases:
    """Hashes with one key; an alias is never hashed again."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.made: set[str] = set()

    def of(self, kind: str, name: str) -> str:
        """The alias of a name of one kind; an alias is returned unchanged."""
        if name in self.made:
            return name
        digest = hmac.new(self._key, f"{kind}\0{name}".encode("utf-8", "surrogatepass"), "sha256").hexdigest()
        self.made.add(alias := f"{kind}-{digest[:_HASH_CHARACTERS]}")
        return alias


class Redaction:
    """Hides the names of one report; the same name gets the same hash wherever it stands.

    `names`: further secrets -> their kind.
    """

    def __init__(self, report: Report, key: bytes, names: Mapping[str, str] | None = None) -> None:
        self._alias = _Aliases(key).of
        self._source = report
        events = {e.event for finding in report.findings for e in finding.evidence if e.event}
        self.text = _scrubber({**_known(report), **(names or {})}, events, self._alias)

    def event(self, name: str) -> str:
        """An event's name; public identifiers in it (operators, vendor kernels, collectives) stay."""
        line = lines_hidden(name, self._alias)
        return line if line != name else renamed(name, lambda identifier: self._alias("event", identifier))

    def setting(self, value: str) -> str:
        """A captured setting, kept where it is a number, a switch or public."""
        plain = value in ("True", "False", "None", "") or value.replace(".", "", 1).lstrip("-").isdigit()
        return value if plain or renamed(value, lambda _: "") == value else self._alias("setting", value)

    def report(self) -> Report:
        """The report with its names hidden."""
        report, alias = self._source, self._alias
        run = report.run
        shown = rewritten(replace(report, tables={}, findings=(), failure=None), self.text)
        if (failure := report.failure) is not None:
            document = rewritten(dict(failure.document), self.text, keys=False)
            failure = Failure({**document, "schema": failure.document["schema"], "kind": failure.kind})
        return replace(
            shown,
            run=replace(
                shown.run,
                name=alias("run", run.name) if run.name else "",
                hosts={rank: alias("host", host) for rank, host in run.hosts.items()},
                paths=tuple(alias("path", path) for path in run.paths),
                commit=alias("commit", run.commit) if run.commit else "",
            ),
            failure=failure,
            applied=tuple(
                replace(row, setting=source.setting, value=source.value, object=source.object)  # words of torch's
                for row, source in zip(shown.applied, report.applied, strict=True)
            ),
            findings=tuple(self._finding(finding) for finding in report.findings),
            ledger=replace(shown.ledger, per_step=step_causes(report)),  # made from the tables, which hold names
        )

    def table(self, table: Table, of_events: bool = False) -> Table:
        """The table with the names in its text columns hidden. `of_events`: they name events."""
        texts = {c.name: table[c.name] for c in table.schema.columns if c.dtype == "str"}
        hide = self.event if of_events else self.text
        return table.replace(**{name: [hide(str(value)) for value in column] for name, column in texts.items()})

    def _finding(self, finding: Finding) -> Finding:
        shown = rewritten(finding, self.text)
        events = [source.event and self.event(source.event) for source in finding.evidence]
        evidence = tuple(replace(e, event=event) for e, event in zip(shown.evidence, events, strict=True))
        # The source of a fix is public documentation, as ddprof's own texts name it; no path of this site.
        sources = (hidden(fix.source, lambda name: self._alias("name", name)) for fix in finding.fixes)
        fixes = tuple(replace(fix, source=source) for fix, source in zip(shown.fixes, sources, strict=True))
        return replace(shown, evidence=evidence, fixes=fixes)


def redaction_key() -> bytes:
    """DDPROF_REDACT_KEY, else a random key, with which two calls cannot be linked."""
    return os.environ.get("DDPROF_REDACT_KEY", "").encode() or secrets.token_bytes(16)


def redacted(report: Report, key: bytes) -> Report:
    """The report with its names hidden."""
    return Redaction(report, key).report()


def redacted_trace(trace: RankTrace, redaction: Redaction) -> RankTrace:
    """A rank's trace with the names of its events, threads and files hidden."""
    tracks = {name: [redaction.event(str(v)) for v in trace.tracks[name]] for name in ("pid", "tid", "name")}
    strings = tuple(map(redaction.event, trace.strings))
    names = {name: [redaction.event(str(v)) for v in trace.script_frames[name]] for name in ("file", "function")}
    frames = trace.script_frames.replace(**names)
    return replace(trace, path="", strings=strings, tracks=trace.tracks.replace(**tracks), script_frames=frames)


def redacted_data(data: Something, key: bytes, names: Mapping[str, str] | None = None) -> Something:
    """Plain data outside any report, redacted. `names`: further secrets -> their kind."""
    return rewritten(data, _scrubber(names or {}, (), _Aliases(key).of))


def _known(report: Report) -> dict[str, str]:
    """Names of the site that a report states as such -> their kind."""
    kinds = dict.fromkeys((*report.run.hosts.values(), *report.clock.hosts), "host")
    kinds.update(dict.fromkeys(report.run.paths, "path"))
    kinds.update({path.replace("\\", "/").rsplit("/", 1)[-1]: "path" for path in report.run.paths})
    # A run called like one of ddprof's own words ("sync") would take that word out of every sentence.
    ids = {*CAUSE_IDS, *(finding.id for finding in report.findings), *report.checked}
    ids |= {abstained.id for abstained in report.abstentions}
    own = ids | {word for name in ids for word in re.split(r"[._]", name)} | {n.partition(".")[2] for n in ids}
    if report.run.name and not is_public(report.run.name) and report.run.name not in own:
        kinds[report.run.name] = "run"
    return kinds


def _scrubber(
    kinds: Mapping[str, str], events: Collection[str], alias: Callable[[str, str], str]
) -> Callable[[str], str]:
    """A function that hashes the known secrets and every private word of a text."""
    # Where no host is known clocks are named after their ranks, and ranks stay.
    kinds = {name: kind for name, kind in kinds.items() if name and not _RANK.fullmatch(name)}
    # A short name hits ordinary words inside a sentence: it is a secret only where it is the whole text.
    longest = sorted((name for name in kinds if len(name) >= _LEAST_SECRET), key=len, reverse=True)
    pattern = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in longest)) if longest else None

    def scrub(text: str) -> str:
        if text in kinds:
            return alias(kinds[text], text)
        text = lines_hidden(text, alias)
        for event in events:
            if event in text:
                text = text.replace(event, renamed(event, lambda identifier: alias("event", identifier)))
        if pattern is not None:
            text = pattern.sub(lambda m: alias(kinds[m.group()], m.group()), text)
        return hidden(text, lambda name: alias(kind_of(name), name))

    return scrub


def rewritten(value: Something, text: Callable[[str], str], keys: bool = True) -> Something:
    """A copy of plain data (dataclasses, sequences, mappings and `keys`) with `text` applied to every text."""
    return _rewritten(value, text, keys)  # type: ignore[no-any-return]


def _rewritten(value: Any, text: Callable[[str], str], keys: bool) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, tuple | list):
        return type(value)(_rewritten(item, text, keys) for item in value)
    if isinstance(value, Mapping):
        return {
            _rewritten(key, text, keys) if keys else key: _rewritten(item, text, keys) for key, item in value.items()
        }
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _rewritten(getattr(value, f.name), text, keys) for f in fields(value)})
    return value
