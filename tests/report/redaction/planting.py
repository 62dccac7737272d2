"""A run with a secret in every field: texts and keys of the traces and of the files beside them, file names."""

import base64
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

# What a site might call its things; none of these is a word of ddprof's or of a public library's.
STEMS = ("quagga", "Zanzibar", "oryx_falcon", "blueBadger", "kea-lynx", "Übermut", "stoat.heron", "tapir ibis")
FIXED = frozenset({"ph", "cat", "s", "bp", "displayTimeUnit", "backend", "schema", "dtype", "Collective name", "kind"})
PUBLIC_START = re.compile(r"ProfilerStep|enumerate\(|Memcpy|Memset|Optimizer|Iteration|PyTorch|ac2g|DataLoader")


class Secrets:
    """One secret for each (field, value), so that what was equal stays equal: groups still match over the ranks."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], str] = {}

    def of(self, field: str, value: str) -> str:
        number = len(self._of)
        return self._of.setdefault((field, value), f"{STEMS[number % len(STEMS)]}{number:04d}")

    @property
    def all(self) -> list[str]:
        return sorted(self._of.values())

    def planted(self, value: Any, field: str) -> Any:
        """The value with a secret behind every text in it and as a further key of every mapping."""
        if isinstance(value, str):
            # Names begin like public ones: the secret is their template argument, a scope, a further word.
            joint = ("_", "::", "<", " ", "")[len(field + value) % 5]
            return value if field in FIXED else value + joint + self.of(field, value)
        if isinstance(value, list):
            return [self.planted(item, field) for item in value]
        if isinstance(value, dict):
            further = {self.of(field, "key"): self.of(field, "its value")}
            return {key: self.planted(item, key) for key, item in value.items()} | further
        return value


def plant(source: Path, folder: Path, secrets: Secrets) -> Path:
    """A run folder made of the traces of `source`, with a sidecar and further files; every text planted."""
    run = folder / secrets.of("file", "run")
    run.mkdir(parents=True)
    for rank, file in enumerate(sorted(source.glob("*.gz"))):
        stem = f"rank{rank}.{secrets.of('host', 'name').replace('.', '-').replace(' ', '-')}.{100 + rank}.0"
        document = json.loads(gzip.decompress(file.read_bytes()))
        (run / f"{stem}.stacks.jsonl").write_text(_stacks(document, secrets))
        trace = json.dumps(_trace(document, rank, secrets)).encode()
        (run / f"{stem}.0.pt.trace.json.gz").write_bytes(gzip.compress(trace))
        (run / f"{stem}.sidecar.json").write_text(json.dumps(_sidecar(rank, secrets)))
        lines = [{"worker": 0, "pid": 1, "index": n, "start_ns": n, "end_ns": n + 1, "note": "x"} for n in range(3)]
        workers = "".join(json.dumps(secrets.planted(line, "worker")) + "\n" for line in lines)
        (run / f"{stem}.workers.jsonl").write_text(workers)
    told = {"command": "python train.py", "cwd": "/home", "exit_code": 0, "hosts": {"0": "a"}}
    (run / "manifest.json").write_text(json.dumps(secrets.planted({"schema": "ddprof.run/1", **told}, "manifest")))
    (run / f"{secrets.of('file', 'notes')}.json").write_text(json.dumps(secrets.planted({"a": "b"}, "strange")))
    (run / f"{secrets.of('file', 'damaged')}.pt.trace.json").write_text('{"traceEvents": [{"ph": "X", "name": "cut')
    return run


def _stacks(document: dict[str, Any], secrets: Secrets) -> str:
    """Samples of the thread that marks the steps, all through the trace, in functions of names that nobody may see."""
    marks = [event for event in document["traceEvents"] if str(event.get("name")).startswith("ProfilerStep#")]
    files = [f"/{secrets.of('frame', 'folder')}/{secrets.of('frame', 'file')}{n}.py" for n in range(3)]
    frames = [["", "...", 0], *([file, secrets.of("frame", f"function {file}"), 7] for file in files)]
    base_ns = int(document.get("baseTimeNanoseconds", 0))
    start_ns = base_ns + int(1000 * min(float(mark["ts"]) for mark in marks)) if marks else base_ns
    samples = [[n * 10**6, 10**6, 0, 0, 5, 1 + n % 3] for n in range(500)]
    lines = [
        {"kind": "begin", "phases": ["data", "forward", "backward", "optimizer", "collective", "rest"], "path": ["/"]},
        {"kind": "frames", "from": 0, "frames": frames},
        {"kind": "stacks", "from": 0, "stacks": [[-1, 0], [-1, 1], [1, 2], [2, 3]]},
        {"kind": "threads", "from": 0, "threads": [[secrets.of("thread", "name"), marks[0]["tid"] if marks else 1]]},
        {"kind": "counts", "counts": [[stack, 5, 0, 100, 10**8, 10**7] for stack in (1, 2, 3)]},
        {"kind": "samples", "at_ns": start_ns, "period_ns": 10**6, "samples": samples},
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def _trace(document: dict[str, Any], rank: int, secrets: Secrets) -> dict[str, Any]:
    """Every name but those that mark steps and batches; of operators and kernels every third stays public."""
    events = document.pop("traceEvents")
    for number, event in enumerate(events):
        name = event.get("name", "")
        if not PUBLIC_START.match(name) and number % 3:
            event["name"] = secrets.planted(name, f"{event.get('cat')} of {rank}") + (">" if number % 2 else "")
        if "args" in event:
            event["args"] = secrets.planted(event["args"], "args")
    return {**secrets.planted(document, "header"), "traceEvents": events}


def _sidecar(rank: int, secrets: Secrets) -> dict[str, Any]:
    document = {
        **{"rank": rank, "world_size": 3, "host": "node", "parallelism": ["ddp"], "errors": ["could not open file"]},
        "device": {"name": "NVIDIA H100", "uuid": "GPU-1", "pci_address": "0000:01"},
        "process_groups": [{"name": "0", "desc": "default_pg", "ranks": [0, 1, 2]}],
        "optimizer": {"class": "AdamW", "fused": False, "foreach": True},
        "parameters": {"count": 1000, "dtype": "float32"},
        "precision": {"float32_matmul_precision": "highest"},
        "dataloader": {"num_workers": 0, "dataset": "Folder", "sampler": {"class": "RandomSampler"}},
        "communication_environment": {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO"},
        "syncs": [{"start_ns": 1, "end_ns": 2, "where": "train.py:17", "what": "item"}],
        "nccl": {"transports": ["SHM"], "lines": ["NET/IB : Using mlx5_0"]},
        "versions": {"torch": "2.9", "python": "3.11"},
    }
    return {"schema": "ddprof.run/1", "state": "exit", **secrets.planted(document, "sidecar")}


def found(secrets: list[str], output: bytes) -> list[str]:
    """Secrets that are in an output: as they are, in lower case, escaped, or inside what is packed in it."""
    text = "\0".join(part.decode("utf-8", "replace").lower() for part in _unpacked(output))
    stems = {stem for stem in STEMS if any(form in text for form in _forms(stem))}  # most outputs hold none
    return [s for s in secrets if s[:-4] in stems and any(form in text for form in _forms(s))]


def _forms(secret: str) -> set[str]:
    low = secret.lower()
    return {low, json.dumps(low)[1:-1], quote(low).lower(), escape(low), low.replace("-", "_"), low.replace(" ", "+")}


def _unpacked(output: bytes) -> Iterator[bytes]:
    """The output, and what is gzipped, deflated or in base64 inside it."""
    yield output
    if output[:2] == b"\x1f\x8b":
        yield from _unpacked(gzip.decompress(output))
    for match in re.finditer(rb"[A-Za-z0-9+/]{40,}={0,2}", output):
        data = base64.b64decode(match.group() + b"=" * (-len(match.group()) % 4))
        yield data
        for window_bits in (zlib.MAX_WBITS | 16, zlib.MAX_WBITS):  # gzip, deflate
            with suppress(zlib.error):
                yield zlib.decompress(data, window_bits)
