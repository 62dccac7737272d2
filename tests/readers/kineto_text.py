"""Writes Kineto text in every layout met in the wild, with numbers exactly as asked for."""

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

LAYOUTS = ("compact", "indented", "one_per_line", "header_last", "list", "lines", "bom", "crlf")
JSON = st.recursive(  # any value
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_NUMBER = re.compile(r'"@@(-?[0-9.]+)@@"')


def us(ns: int) -> str:
    """Nanoseconds as the decimal microseconds that Kineto prints, to be written without quotes."""
    return f"@@{Decimal(ns) / 1000:f}@@"


def span(
    name: str, ts_ns: int, dur_ns: int, cat: str = "cpu_op", pid: Any = 1, tid: Any = 1, **args: Any
) -> dict[str, Any]:
    event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": us(ts_ns), "dur": us(dur_ns)}
    return {**event, "args": args} if args else event


def kernel(name: str, ts_ns: int, dur_ns: int, device: int = 0, stream: int = 7, **args: Any) -> dict[str, Any]:
    return span(name, ts_ns, dur_ns, "kernel", device, stream, device=device, stream=stream, **args)


def render(events: Sequence[Any], layout: str = "compact", header: dict[str, Any] | None = None) -> bytes:
    """The bytes of a file in one of LAYOUTS."""
    head = header if header is not None else {"schemaVersion": 1}
    indent = 2 if layout == "indented" else None
    if layout == "list":
        text = json.dumps(list(events))
    elif layout == "lines":
        text = "\n".join(json.dumps(e) for e in events) + "\n"
    elif layout == "one_per_line":
        body = ",\n".join(json.dumps(e) for e in events)
        text = json.dumps(head)[:-1] + f', "traceEvents": [\n{body}\n]}}\n'
    elif layout == "header_last":
        text = json.dumps({"traceEvents": list(events), **head})
    else:
        text = json.dumps({**head, "traceEvents": list(events)}, indent=indent, ensure_ascii=layout != "compact")
    text = _NUMBER.sub(r"\1", text)
    if layout == "crlf":
        text = text.replace(", {", ",\r\n{")
    return (b"\xef\xbb\xbf" if layout == "bom" else b"") + text.encode()


def write(path: Path, events: Sequence[Any], layout: str = "compact", header: dict[str, Any] | None = None) -> Path:
    path.write_bytes(render(events, layout, header))
    return path
