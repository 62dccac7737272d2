"""Kind of a file by its content. Names are not trusted, as suffixes lie and exporters invent new ones."""

from __future__ import annotations

import re

from msgspec import Struct

from ddprof.readers.files.tar_members import is_tar
from ddprof.readers.format import Sample
from ddprof.readers.formats import formats

_EXECUTION_TRACE = re.compile(
    rb'"nodes"\s*:.{0,4000}"(?:fw_parent|op_schema|ctrl_deps|rf_id)"|"workload_graph"\s*:.{0,4000}"data_deps"', re.S
)
# How `.workers.jsonl`, `control.json`, counters and the truth of a sample begin, which state no schema.
_RUN_FILE = re.compile(
    rb'\{"worker":\s*\d+,\s*"start_ns":|\{"id":\s*\d+,\s*"action":|\{"at_ns":\s*\d+,"|'
    rb'\{[^{]{0,400}"findings":.{0,4000}"expected_bound":',
    re.S,
)
_FACTS = re.compile(rb"\xde..\xa8identity", re.S)  # how kept facts begin, in MessagePack (analyzers/facts/cache.py)
_OURS = re.compile(rb'"schema"\s*:\s*"ddprof\.(?P<what>[a-z]+)/')
_HTML = re.compile(rb"\s*<(?:!doctype|html|\?xml)", re.IGNORECASE)
TAR, ZIP = "a tar archive", "a zip archive"
_OTHER_JSON = "JSON, but not a trace"
OTHER_TEXT = "not a trace (neither JSON nor SQLite), nor a log with times of training steps"
NO_TIMES = "a log of a training without the times of three steps: print one in each line, or `ddprof run` the job"
_OBJECT = re.compile(rb'(\{"[^\n]{1,65536}\})\r?\n\{"')  # one in each line
_LOSS = re.compile(rb'(?:loss\w{0,20}|train/\w{1,40})": ?-?\d')
_OTHER_FILES = {
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "a text in UTF-16 or UTF-32: save it as UTF-8"),
    b"PAR1": "a parquet table",
    b"ARROW1": "an Arrow table",
    b"\x7fELF": "a program",
    b"\x89PNG": "a picture",
    b"PK\x03\x04": ZIP,
    **{b"\x80" + bytes([protocol]): "a pickle of something else" for protocol in (2, 3, 4, 5)},
}
# Whole files that lie beside traces of many programs: one note for all.
_OF_ASCEND = "sums by collective of Ascend's profiler, not a timeline: give ddprof the trace_view.json beside it"
UNREMARKABLE = (_OTHER_JSON, _OF_ASCEND, "a parquet table", "an Arrow table", "a picture")
# (how the file begins, anywhere in its first bytes if it is a pattern, what it is and what to do)
_KNOWN: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (
        re.compile(rb"\A\x00*QDSTRM|\AQDREP"),
        "an unfinished report of Nsight Systems: its QdstrmImporter makes a .nsys-rep of it, and `nsys export --type "
        "sqlite FILE` of that what ddprof reads",
    ),
    (
        re.compile(rb"\Aversion https://git-lfs\.github\.com/spec/"),
        "a pointer of Git LFS, not the file itself: `git lfs pull` fetches it",
    ),
    (
        re.compile(rb"\A(?:\.\./)*(?:\.git/annex|/annex)/objects/"),
        "a pointer of git-annex, not the file itself: `git annex get` fetches it",
    ),
    (
        # What `export_memory_timeline` writes as .json, .raw.json.gz and .html, and the page of a snapshot.
        re.compile(
            rb"\A\[\[-?\d+(?:, -?\d+){7}|\A\[\[-?\d+, \d, \d+, \d+\]"
            rb"|\A\[\[-?\d+, -?\d+, \[-?\d+, -?\d+\], -?\d+, -?\d+\]"
            rb"|\A\s*<.{0,800}?(?:<title>GPU Memory Timeline|/torch/utils/viz/MemoryViz\.js)",
            re.S,
        ),
        "a memory timeline of PyTorch, sums by category without events: `ddprof memory` reads a snapshot "
        "(torch.cuda.memory._dump_snapshot), `ddprof analyze` a trace (profile_memory=True)",
    ),
    (
        re.compile(rb'\A\s*\{\s*"best_(?:global_step|metric)":.{0,400}"best_model_checkpoint":', re.S),
        "the state of a Hugging Face Trainer, which holds no time of a step: the log that the Trainer prints does",
    ),
    (
        re.compile(rb'\A\s*\[\s*\{"id":\d+,"(?:timestamps|model_name)":'),
        "a trace of requests of Triton Inference Server, which tells of no device: `nsys profile` of the server does",
    ),
    (
        re.compile(rb'\A\s*\{\s*"rocprofiler-sdk-tool"|\A"(?:Kind|Domain)","\w+","\w+_Id"'),
        "JSON or CSV of rocprofv3 (rocprofiler-sdk), which ddprof does not read: `rocprofv3 --output-format rocpd`, "
        "torch.profiler and `ddprof run` write what it reads",
    ),
    (
        re.compile(rb'\A"?(?:Index"?,"?KernelName|Name"?,"?Calls"?,"?TotalDurationNs"?,"?AverageNs)"?,'),
        "a table of rocprof, without the host's calls: ddprof reads the results.json that `rocprof --sys-trace` writes",
    ),
    (
        # Its first message, GlobalMetadata: a version, or attributes of which the first is the schema.
        re.compile(rb"\A.{1,2}(?:\x0a[\x05-\x08\x0b\x0c\x0e-\x14]\d+\.[\d.]|\x12.\x0a\x06schema)", re.S),
        "an execution trace of Chakra (protobuf), which has no timeline: give ddprof the profiler's traces that it was "
        "made of",
    ),
)
# Apart: what begins with one text is searched for fast, and what begins a file is not searched for.
_HOLDING: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (
        re.compile(rb'"\$schema"\s*:\s*"https://www\.speedscope\.app/'),
        "a profile of speedscope (py-spy and others): samples of code, no work of a device; `ddprof run` records both",
    ),
    (re.compile(rb'"Communication Time Info"\s*:'), _OF_ASCEND),
    (re.compile(rb'"Transport Type"\s*:\s*"\w+",\s*"Transit Size'), _OF_ASCEND),
)
# Text that no format claims.
_TEXTS: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (
        re.compile(rb"^\S{1,200}:\d+:\d+ \[\d+\] NCCL (?:INFO|WARN|TRACE) ", re.M),
        "a log with debug lines of NCCL, which hold calls and settings without times: give ddprof traces of the job",
    ),
    (
        re.compile(
            rb"(?i)(?:^.{0,120}\b(?:epoch|iter|iteration|step|batch)\W{0,4}\d.{0,200}(?:\bloss\b|samples/s).{0,400}\n\s{0,4}.{0,9}){2}",
            re.M,
        ),
        NO_TIMES,
    ),
    (
        re.compile(rb"^==\d+== (?:NVPROF is profiling|Profiling (?:application|result))", re.M),
        "text of nvprof, which Nsight Systems replaces: `nsys profile --trace cuda,nvtx`, or torch.profiler",
    ),
    (
        re.compile(
            rb"^(?:Processing|Exporting) \[.{1,300}/reports/\w+\.py|\A(?:Start \(ns\),Duration|Time \(%\),Total)"
            rb"|Time ?\(%\)[ |]{1,9}Total Time \(ns\)",
            re.M,
        ),
        "a table of `nsys stats`: `nsys export --type sqlite FILE` makes of the report beside it what ddprof reads",
    ),
    (
        re.compile(rb"^ *Name +(?:Self CPU %|Self CPU total %).{0,200}# of Calls", re.M),
        "a table of torch.profiler's sums: `export_chrome_trace` writes the events, which ddprof reads",
    ),
    (
        re.compile(rb"^ {2,}ncalls {2,}tottime {2,}percall {2,}cumtime ", re.M),
        "a profile of Python functions (cProfile): sums of the host alone; `ddprof run` records host and devices",
    ),
    (
        re.compile(
            rb"(?i)\Atimestamp, .{0,200}(?:utilization|memory|power)\."
            rb"|^\d{4}(?:/\d\d){2} [\d:.]{12}, .{0,200}\d (?:%|MiB)"
        ),
        "a log of nvidia-smi, which tells the load of devices and not what they do: give ddprof traces of the same job",
    ),
    (
        re.compile(
            rb"^\[\d{4}-\d\d-\d\dT[\d:.]+\] \[\d+\] \[\w+\] \[[\w-]+\] \[#?[\w-]+\] \[(?:BEGIN|END|INSTANT)\] ", re.M
        ),
        "events of DLRover, which hold no timeline: `ddprof analyze` of the job's training log tells its iterations",
    ),
    (
        re.compile(rb"\A[^\n;{]{1,400};[^\n]{1,8000} \d+\r?\n[^\n;{]{1,400};"),
        "collapsed stacks, sums without times: flamegraph.pl or speedscope draw them",
    ),
)
TEXTS = (OTHER_TEXT, *(what for _, what in _TEXTS))  # may be logs of training whose first number comes late


class Sniffed(Struct, frozen=True):
    """The kind of a file. `format`: one of FORMATS, "execution_trace", "run_file" (of our own capture) or None.

    `what` describes it to a person.
    """

    format: str | None
    what: str


def sniff(sample: Sample) -> Sniffed:
    """Recognise a file: as one of ddprof's own, as a trace of some format, or as something else that has a name."""
    if not sample.head.strip(b"\0 \t\r\n"):
        size = len(sample.head)
        return Sniffed(None, f"its first {size:,} bytes are white space or zeros" if size else "an empty file")
    if is_tar(sample.head):
        return Sniffed(None, TAR)
    for name, candidate in formats().items():
        if candidate.is_sure is not None and candidate.is_sure(sample):
            return Sniffed(name, candidate.what)
    other = _foreign(sample)
    if other:
        return Sniffed(None, other)
    if _FACTS.match(sample.head):
        return Sniffed("run_file", "kept facts of ddprof")
    ours = _OURS.search(sample.text[:400]) if sample.is_object else None
    if ours:
        return Sniffed("run_file", f"a {ours['what'].decode()} file of ddprof")
    if _RUN_FILE.match(sample.text):
        return Sniffed("run_file", "a file of ddprof")
    if sample.is_object and sample.has(_EXECUTION_TRACE, (b'"nodes"', b'"workload_graph"')) and not sample.has_events:
        return Sniffed("execution_trace", "an execution trace (Chakra)")
    for name, candidate in formats().items():
        if candidate.recognise(sample):
            return Sniffed(name, candidate.what)
    return Sniffed(None, _otherwise(sample))


def _otherwise(sample: Sample) -> str:
    for magic, what in _OTHER_FILES.items():
        if sample.head.startswith(magic):
            return what
    if _HTML.match(sample.head):
        return "an HTML page, not a trace"
    if sample.is_json:
        first = _OBJECT.match(sample.text)
        return NO_TIMES if first is not None and _LOSS.search(first[1]) else _OTHER_JSON
    return next((what for pattern, what in _TEXTS if pattern.search(sample.text)), OTHER_TEXT)


def _foreign(sample: Sample) -> str | None:
    """Description of a file of another tool, and what to do with it; None for any other file."""
    for form in formats().values():
        if form.missing is not None and form.recognise(sample) and (what := form.missing()):
            return what
    begins = next((what for pattern, what in _KNOWN if pattern.match(sample.head)), None)
    return begins or next((what for pattern, what in _HOLDING if pattern.search(sample.head)), None)
