"""What a file is, by its content. Names are never trusted: suffixes lie, and exporters invent new ones."""

from __future__ import annotations

import re
from dataclasses import dataclass

HEAD_BYTES = 1 << 18
_KINETO = re.compile(
    rb'"(?:schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds|schema_version)"\s*:'
    rb'|"cat"\s*:\s*"(?:cpu_op|Operator|kernel|Kernel|cuda_runtime|Runtime|user_annotation|gpu_memcpy|cuda_driver|python_function'
    rb'|hip_runtime|xpu_runtime|privateuse1_runtime)"'
)
_TENSORFLOW = re.compile(rb'"/(?:device|host|job):|"highres-ticks"')
_HOROVOD = re.compile(rb'"NEGOTIATE_[A-Z]+|"CYCLE_START"')
_OP_TIMELINE = re.compile(rb'"(?:forward|backward)-(?:compute|send|recv)"')
_EVENT = re.compile(rb'"ph"\s*:')
_TRACE_EVENTS = re.compile(rb'"traceEvents"\s*:')
_NCCL_PROFILER = re.compile(
    rb'"(?:recordType|type)"\s*:\s*"(?:ProfilerLifecycle|event|state)".{0,400}"(?:commId|eventAddr|gpuUuid)"', re.S
)
_FLIGHT_RECORDER = re.compile(rb'"(?:pg_status|comm_lib_version|nccl_comm_state)"\s*:|"collective_seq_id"\s*:')
_EXECUTION_TRACE = re.compile(rb'"nodes"\s*:.{0,4000}"(?:fw_parent|op_schema|ctrl_deps|rf_id)"', re.S)
_OURS = re.compile(rb'"schema"\s*:\s*"ddprof\.(?P<what>[a-z]+)/')
_SQLITE = b"SQLite format 3\0"
_HTML = re.compile(rb"\s*<(?:!doctype|html|\?xml)", re.IGNORECASE)

READABLE = frozenset(
    {"kineto", "nsys", "rpd", "horovod", "flight_recorder", "nccl_profiler", "tensorflow", "op_timeline", "chrome"}
)
_NOT_TRACES = {
    b"PAR1": "a parquet table",
    b"ARROW1": "an Arrow table",
    b"\x7fELF": "a program",
    b"\x89PNG": "a picture",
    b"PK\x03\x04": "a zip archive",
}


@dataclass(frozen=True)
class Sniffed:
    """`format` is one of READABLE, "execution_trace", "run_file" (of our own capture) or None.

    `what` describes it to a person.
    """

    format: str | None
    what: str


def sniff(head: bytes) -> Sniffed:
    """Recognise a file from its first unpacked bytes (up to HEAD_BYTES; all of them where the file is shorter)."""
    if not head.strip(b"\0 \t\r\n"):
        return Sniffed(None, "an empty file")
    if head.startswith(_SQLITE):
        return _sqlite(head)
    for magic, what in _NOT_TRACES.items():
        if head.startswith(magic):
            return Sniffed(None, what)
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        is_dump = b"pg_config" in head or b"collective_seq_id" in head
        return (
            Sniffed("flight_recorder", "a flight-recorder dump")
            if is_dump
            else Sniffed(None, "a pickle of something else")
        )
    if _HTML.match(head):
        return Sniffed(None, "an HTML page, not a trace")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"["):
        return _list_root(text)
    if text.startswith(b"{"):
        return _object_root(text)
    return Sniffed(None, "not a trace (neither JSON nor SQLite)")


def _sqlite(head: bytes) -> Sniffed:
    if b"rocpd_" in head or b"rocpd" in head:
        return Sniffed("rpd", "a rocprof database")
    return Sniffed("nsys", "an SQLite database")


def _list_root(text: bytes) -> Sniffed:
    if _HOROVOD.search(text):
        return Sniffed("horovod", "a Horovod timeline")
    if _OP_TIMELINE.search(text):
        return Sniffed("op_timeline", "an operation-level timeline of several workers")
    if _KINETO.search(text):
        return Sniffed("kineto", "a PyTorch profiler trace")
    if _EVENT.search(text):
        return Sniffed("chrome", "a Chrome trace")
    return Sniffed(None, "JSON, but not a trace")


def _object_root(text: bytes) -> Sniffed:
    ours = _OURS.search(text[:400])
    if ours:
        return Sniffed("run_file", f"a {ours['what'].decode()} file of ddprof")
    if _NCCL_PROFILER.match(text, text.find(b'"')):
        return Sniffed("nccl_profiler", "an NCCL profiler log")
    if _FLIGHT_RECORDER.search(text) and not _EVENT.search(text):
        return Sniffed("flight_recorder", "a flight-recorder dump")
    if _EXECUTION_TRACE.search(text) and not _EVENT.search(text):
        return Sniffed("execution_trace", "an execution trace (Chakra)")
    if _TRACE_EVENTS.search(text) or _EVENT.search(text):
        if _OP_TIMELINE.search(text):
            return Sniffed("op_timeline", "an operation-level timeline of several workers")
        if _TENSORFLOW.search(text) and not _KINETO.search(text):
            return Sniffed("tensorflow", "a TensorFlow trace")
        if _HOROVOD.search(text):
            return Sniffed("horovod", "a Horovod timeline")
        return Sniffed("kineto", "a PyTorch profiler trace")
    return Sniffed(None, "JSON, but not a trace")
