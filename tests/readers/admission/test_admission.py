"""Files are refused in one true line, or get a rank from the strongest evidence and are the jobs that they show."""

import json
import re
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import kineto_text as kt
import pytest
from reading import FORMATS, MALFORMED, broken, refusal, traces

from ddprof.analyzers.engine import Options, analyze, load_runs
from ddprof.model import HealthNote, Identity
from ddprof.readers import Inventory, Source, notes_by_run, resolve_identities
from ddprof.readers.admission.discover import attach
from ddprof.readers.admission.jobs import Recording, admission_notes, split_jobs
from ddprof.readers.admission.sniff import sniff
from ddprof.readers.files.names import rank_in_name
from ddprof.readers.format import Sample

FILES = {
    "nsys export": b"NVIDIA Tegra Profiler Report 1.\n\x0bLocal (CLI)",
    "git lfs pull": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n",
    "git annex get": b"/annex/objects/SHA256E-s3--00.json\n",
    "without a complete plane|XPlane": b'\n\xa1\xf0\x08\x12\x0e/host:metadata"\xbf\x14',
    "a profile of speedscope": b'{\n "$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {}}',
    "rocprofv3": b'{"rocprofiler-sdk-tool":[{"metadata":{"node":{"id":0}}}]}',
    "CSV of rocprofv3": b'"Kind","Agent_Id","Queue_Id"\n"KERNEL_DISPATCH","Agent 1","2"\n',
    "a log of nvidia-smi": b"2026/04/25 16:06:06.780, 0 %, 2 MiB\n",
    "a log of nvidia-smi, which": b"timestamp, index, utilization.gpu [%]\n2024/11/23 12:23:29.950, 0, 92 %\n",
    "a table of `nsys stats`": b"Start (ns),Duration (ns),CorrId\n1,2,3\n",
    "a table of torch.profiler's sums": b"-----\n   Name    Self CPU %      Self CPU    # of Calls\n",
    "a memory timeline": b"[[10, 20, 30, 40, 50, 60, 70, 80], [[0, 8]]]",
    "a memory timeline.*snapshot": b"[[10, -1, [5, 0], 4096, 6], [20, 1, [5, 0], 4096, 6]]",
    "a memory timeline.*`ddprof memory`": b"[[-1, 1, 37888, 7], [1680731, 2, 512, 4]]",
    "Chakra .protobuf.": b"^\x12\x10\n\x06schema\xea\x01\x051.0.1\x12\t\n\x03pid",
    "Chakra .protobuf., which has no timeline": b"\x07\n\x050.0.4\x1e\x08\x01\x12\x03mm0",
    "a memory timeline of PyTorch": b"<html><head><meta /><title>GPU Memory Timeline HTML</title></head></html>",
    "debug lines of NCCL": b"\nvm:617:640 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7c40 count 1 datatype 7 op 0\n",
    "a log of a training without the times of three steps": b"start\n"
    + b"[Epoch 7 Batch 100/171] loss=0.0964, acc=0.9\n" * 3,
    "a log of a training without the times": b'{"train_loss": 7.9, "epoch": 8}\n{"train_loss": 7.8}\n',
    "state of a Hugging Face Trainer": b'{\n "best_metric": null,\n "best_model_checkpoint": null,\n "epoch": 1}',
    "text of nvprof": b"==18148== NVPROF is profiling process 18148, command: python train.py\n",
    "events of DLRover": b'[2025-04-21T23:31:09.074419] [426] [22b7] [Trainer] [#step] [BEGIN] {"global_step": 7}\n',
    "collapsed stacks": b"a.py(1):main;b.py(2):step 12\r\na.py(1):main;b.py(3):log 4\r\n",
    "sums by collective of Ascend": b'{"step2": {"p2p": {"hcom_send__8_0": {"Communication Time Info": {}}}}}',
    "an execution trace": b'{"workload_graph": [{"Id": 1, "Name": "aten::mm", "data_deps": []}]}',
}


def test_execution_traces_and_databases_of_other_tools_are_called_so(shared_dir: Path, tmp_path: Path) -> None:
    said = refusal(shared_dir / FORMATS / "execution_trace")
    assert "this is an execution trace, not a timeline; capture one with" in said
    for rank in range(2):
        (tmp_path / f"chakra.{rank}.json").write_bytes(FILES["an execution trace"])
    assert "2 files are execution traces" in refusal(str(tmp_path))
    for table, tool in (("read_only_model_info", "DLProf"), ("CANN_API", "Ascend"), ("CommAnalyzerTime", "Ascend")):
        with sqlite3.connect(tmp_path / f"{table}.sqlite") as database:
            database.execute(f"CREATE TABLE {table} (id INTEGER)")
            database.execute("CREATE TABLE NVTX_EVENTS (start INTEGER, globalTid INTEGER)")
        assert re.search(f": (a database of )?{tool}'s ", refusal(tmp_path / f"{table}.sqlite"))


@pytest.mark.usefixtures("decoding")
@pytest.mark.parametrize("name,reason", [("empty.json", "an empty file"), ("html_error_page.json", "an HTML page")])
def test_what_is_no_trace_is_one_true_line(shared_dir: Path, name: str, reason: str) -> None:
    assert f"{name}: {reason}" in refusal(shared_dir / MALFORMED / name)


def test_a_text_in_another_encoding_is_told_by_it() -> None:
    for encoding in ("utf-16", "utf-32"):
        assert "UTF-16" in sniff(Sample('{"traceEvents": []}'.encode(encoding))).what


def test_a_literal_of_a_mark_alone_is_no_mark() -> None:
    mark, literals = re.compile(rb'"CYCLE_START"|"NEGOTIATE_[A-Z]+'), (b'"CYCLE_START"', b'"NEGOTIATE_')
    named = [Sample(b'[{"name": "%s"}]' % name) for name in (b"NEGOTIATE_ALLREDUCE", b"NEGOTIATE_2", b"aten::add")]
    assert [sample.has(mark, literals) for sample in named] == [True, False, False]
    # What libkineto begins is its own whatever words its events hold.
    named_alike = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "NEGOTIATE_ALLREDUCE"}]}'
    assert sniff(Sample(named_alike)).format == "kineto"
    assert sniff(Sample(named_alike.replace(b'"schemaVersion": 1, ', b""))).format == "horovod"
    assert sniff(Sample(b'{"schemaVersion": 1, "notes": []}')).format is None


@pytest.mark.parametrize("words", FILES)
@pytest.mark.parametrize("name", ["profile.pt.trace.json", "profile.bin"])
def test_a_file_of_another_tool_is_refused_by_name(tmp_path: Path, words: str, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[words])
    assert re.search(words, refusal(str(tmp_path / name)))


@pytest.mark.parametrize("content", [b'{"version": "https://git-lfs"}', b"\n\n{}", b"version 2\n"])
def test_other_content_is_not_taken_for_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.json").write_bytes(content)
    assert not any(words in refusal(str(tmp_path / "file.json")) for words in FILES)


def test_a_log_of_training_may_begin_with_megabytes_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(FILES["debug lines of NCCL"] * 20_000)
    assert "debug lines of NCCL" in refusal(str(path))
    with path.open("ab") as file:
        file.write(b" iteration 7/ 9 | elapsed time per iteration (ms): 1000.0 | lm loss: 1.0 |\n")
    assert "a training log" in refusal(str(path))


@pytest.mark.usefixtures("decoding")
def test_rank_four_labelled_zero_is_found_out(shared_dir: Path, tmp_path: Path) -> None:
    wrong = shared_dir / MALFORMED / "duplicate_rank0_is_really_rank4.json.gz"
    for path in (wrong, *(shared_dir / "traces/multi_rank/dlrm_ddp_v100_8ranks").glob("worker[!4]*")):
        (tmp_path / path.name).symlink_to(path)
    given = traces(tmp_path)
    identities, notes = resolve_identities([t.identity for t in given], [t.path for t in given])
    by_name = {Path(t.path).name: i.rank for t, i in zip(given, identities, strict=True)}
    assert by_name[wrong.name] == 4 and sorted(r for r in by_name.values() if r is not None) == list(range(8))
    assert ["device 4" in n.effect for n in notes] == [True]
    # A missing header leaves the rank to the file name.
    identity = broken(shared_dir, "no_distributedInfo_rank5.json.gz").identity
    assert (identity.rank, identity.source) == (5, "file name")


def test_unknown_ranks_follow_process_ids_then_names_and_stated_ones_are_kept() -> None:
    by_pid, notes = resolve_identities([Identity(None, "order", pid=9), Identity(None, "order", pid=4)], ["a", "b"])
    assert [(i.rank, i.source) for i in by_pid] == [(1, "content"), (0, "content")] and "process ids" in notes[0].effect
    by_name, notes = resolve_identities([Identity(None, "order"), Identity(None, "order")], ["b", "a"])
    assert [(i.rank, i.source) for i in by_name] == [(1, "order"), (0, "order")]
    assert "order of their names" in notes[0].effect
    pods = [f"job-worker-{at}_7.1764638676000000000.pt.trace.json" for at in range(12)]  # each with one pid
    in_text_order = resolve_identities([Identity(None, "order", pid=7)] * 12, sorted(pods))[0]
    assert [i.rank for i in in_text_order] == [pods.index(pod) for pod in sorted(pods)]
    known = [Identity(0, "distributedInfo", 3), Identity(None, "order"), Identity(2, "file name")]
    assert [i.rank for i in resolve_identities(known, [*"abc"])[0]] == [0, 1, 2]
    stated = [Identity(3, "distributedInfo", 4), Identity(1, "sidecar", 4)]
    assert resolve_identities(stated, ["a", "b"]) == (stated, [])
    stated = [Identity(1, "distributedInfo", 2), Identity(0, "distributedInfo", 2)]
    resolved, (note,) = resolve_identities(stated, ["rank0.json", "rank1.json"])
    said = "2 file names contradict the ranks that the files state: rank0.json is of rank 1"
    assert (resolved, note.issue) == (stated, said)
    assert resolve_identities(stated, ["a/rank0.json", "b/rank0.json"])[1] == []  # ranks of each host in the names


@pytest.mark.parametrize(
    ("paths", "world", "ranks"),
    [
        *(([path], None, [0]) for path in ("trace_04.json", "runs.zip!trace_04.json")),
        *((["trace_04.json"], 8, [4]), (["rank4.json"], None, [4]), (["trace_4.json", "trace_5.json"], None, [4, 5])),
    ],
)
def test_a_bare_number_names_a_rank_among_several(paths: list[str], world: int | None, ranks: list[int]) -> None:
    resolved, notes = resolve_identities([Identity(rank_in_name(path), "file name", world) for path in paths], paths)
    assert [identity.rank for identity in resolved] == ranks and bool(notes) == (ranks == [0])


def test_a_duplicate_goes_where_its_device_or_its_name_says_or_is_left_out() -> None:
    first = Identity(0, "distributedInfo", 4, pid=1, local_device=0)
    for device, path, rank, said in ((2, "x", 2, "device 2"), (None, "trace_rank1.json", 1, "name says 1")):
        second = Identity(0, "distributedInfo", 4, pid=2, local_device=device)
        resolved, notes = resolve_identities([second, first, Identity(3, "distributedInfo", 4)], [path, "y", "z"])
        assert [i.rank for i in resolved[:2]] == [rank, 0] and said in notes[0].effect
        assert device is None or resolved[0].source == "content"
    resolved, notes = resolve_identities([first, first], ["x", "y"])
    assert [(i.rank, i.source) for i in resolved] == [(0, "distributedInfo"), (None, "duplicate")]
    assert "another window" in notes[0].effect and "left out" in notes[0].effect


SECOND = 10**9
WORLD = frozenset({frozenset(range(4))})


def stating(rank: int, world: int = 4, at_s: float = 0.0, **more: object) -> Recording:
    """A file whose distributedInfo states its rank, recorded for a second from `at_s` on."""
    return replace(silent(f"t{rank}.json", at_s), identity=Identity(rank, "distributedInfo", world, host="a"), **more)


def silent(path: str, at_s: float = 0.0, **more: object) -> Recording:
    window = (round(at_s * SECOND), round((at_s + 1) * SECOND))
    return replace(Recording(Identity(None, "order"), path, window_ns=window), **more)


SMALL, LARGE = ({("0,1", seq): ("all_reduce", size) for seq in range(4)} for size in (100, 900))


def pair(names: str, apart_s: float, communications: int = 3) -> list[Recording]:
    """Two silent files that communicate."""
    return [silent(name, at * apart_s, communications=communications) for at, name in enumerate(names.split())]


def in_group(*communications: int) -> list[Recording]:
    """Silent files that have one process group, and how often each used it."""
    return [silent(f"{at}x.json", communications=used, group_ranks=WORLD) for at, used in enumerate(communications)]


SAME_CALLS = [silent("x.json", numbered=SMALL), silent("y.json", at_s=9, numbered=SMALL)]


@pytest.mark.parametrize(
    ("recordings", "jobs"),
    [
        pytest.param([stating(r) for r in range(4)], [[0, 1, 2, 3]], id="ranks of one world"),
        pytest.param([silent("trace.json"), silent("trace1.json")], [[0], [1]], id="a number alone"),
        pytest.param([silent("trace0.json"), silent("trace1.json")], [[0], [1]], id="numbers, but neither has a peer"),
        pytest.param(pair("rank0.json rank1.json", 0.5), [[0, 1]], id="numbers of one time that communicate"),
        pytest.param(pair("rank0.json rank1.json", 5.0), [[0], [1]], id="numbers of two times"),
        pytest.param(pair("rank0.json amp_rank1.json", 0.5), [[0], [1]], id="numbers behind other names"),
        pytest.param(in_group(1, 1), [[0, 1]], id="a process group in common at one time"),
        pytest.param(in_group(1, 0), [[0], [1]], id="a group that one does not use"),
        pytest.param(SAME_CALLS, [[0, 1]], id="the same collectives, whatever their clocks say"),
        pytest.param([stating(0, numbered=SMALL), stating(1, numbered=LARGE)], [[0], [1]], id="other collectives"),
        pytest.param([stating(r, at_s=at) for at in (0, 60) for r in (0, 1)], [[0, 1], [2, 3]], id="two recordings"),
        pytest.param([stating(0), stating(1, at_s=3600.0), stating(2)], [[0, 1, 2]], id="a clock that is an hour off"),
    ],
)
def test_files_are_one_job_where_they_show_it(recordings: list[Recording], jobs: list[list[int]]) -> None:
    assert split_jobs(recordings) == jobs


def test_other_world_sizes_and_silent_files_are_jobs_of_their_own_and_thousands_are_one() -> None:
    recordings = [stating(0), stating(0, 8), stating(1), stating(1, 8)]
    assert split_jobs(recordings) == [[0, 2], [1, 3]]
    (note,) = admission_notes(split_jobs(recordings), recordings)
    assert "different world sizes (4, 8)" in note.issue and "separate runs" in note.effect
    recordings = [silent("amp.json"), silent("fp32.json", at_s=2)]
    assert split_jobs(recordings) == [[0], [1]]
    (note,) = admission_notes(split_jobs(recordings), recordings)
    assert "different times" in note.issue and "ddprof compare" in note.effect
    assert split_jobs([stating(r, 4096) for r in range(4096)]) == [list(range(4096))]


def test_files_of_other_calls_or_of_groups_that_only_one_used_are_apart() -> None:
    first = stating(0, communications=9, sequences={"0,1,2,3": (10, 20)})
    # The last: windows of one job that opened at different times.
    for numbers, at_s, jobs in (((15, 25), 0.2, 1), ((21, 31), 0.2, 2), ((21, 31), 0.8, 1)):
        assert len(split_jobs([first, stating(1, at_s=at_s, communications=9, sequences={"0,1,2,3": numbers})])) == jobs
    both, neither = ({(0, 1), (0, 2)}, {(0, 1), (1, 3)}), ({(0, 2)}, {(1, 3)})  # no group holds both
    for groups, jobs in ((both, 1), (neither, 1), (({(0, 1), (0, 2)}, {(0, 1, 2, 3)}), 2)):
        used = [
            stating(r, communications=9, group_ranks=frozenset(map(frozenset, own))) for r, own in enumerate(groups)
        ]
        assert len(split_jobs(used)) == jobs


S_NS = 10**9
PLAIN = Options(cache=False, workers=1)


def node(folder: Path, rank: int, **manifest: Any) -> str:
    """The folder of the node of one rank of two; with a manifest of ours where something is said of it."""
    folder.mkdir(parents=True)
    events = [kt.span(f"ProfilerStep#{step}", 10**6 * step, 900_000, "user_annotation") for step in range(3)]
    events += [kt.span("aten::mm", 10**6 * step + 10_000, 880_000) for step in range(3)]
    told = {"backend": "gloo", "rank": rank, "world_size": manifest.get("world_size", 2)}
    header = {"distributedInfo": told, "baseTimeNanoseconds": 100 * S_NS}
    kt.write(folder / f"rank{rank}.node{rank}.9.0.0.pt.trace.json", events, header=header)
    if manifest:
        stated = {"schema": "ddprof.run/1", "ranks": [rank], "world_size": 2, "started_ns": 100 * S_NS, **manifest}
        (folder / "manifest.json").write_text(json.dumps(stated))
    return str(folder)


@pytest.mark.parametrize(
    ("one", "other", "runs"),
    [
        ({}, {}, 1),  # traces alone state rank and world
        *(({"job": "rdzv-7"}, {"job": "rdzv-7"}, 1), ({"job": ""}, {"job": "rdzv-7", "started_ns": 400 * S_NS}, 1)),
        ({"job": "rdzv-7"}, {"job": "rdzv-8"}, 2),
        ({"job": ""}, {"job": "", "started_ns": 2000 * S_NS}, 2),  # another job on another node, later
        ({"job": "a"}, {"job": "a", "world_size": 4}, 2),
    ],
)
def test_parts_of_one_job_are_one_run(tmp_path: Path, one: dict[str, Any], other: dict[str, Any], runs: int) -> None:
    for given in ([node(tmp_path / "x", 0, **one), node(tmp_path / "y", 1, **other)], [str(tmp_path)]):
        reports = analyze(given, PLAIN)
        assert [report.run.ranks for report in reports] == ([(0, 1)] if runs == 1 else [(0,), (1,)])
        assert (reports[0].run.name == "x + y") is (runs == 1)


def test_parts_may_be_called_alike_one_asks_for_the_other_and_those_of_several_jobs_stay_apart(tmp_path: Path) -> None:
    (report,) = analyze([node(tmp_path / f"node{rank}" / "train", rank) for rank in (0, 1)], PLAIN)
    assert (report.run.ranks, report.run.name) == ((0, 1), "train")
    (report,) = analyze([node(tmp_path / "x", 0)], PLAIN)
    assert any("another folder, give both" in item.effect for item in report.health)
    reports = analyze([node(tmp_path / name, int(name[1]), job="") for name in ("a0", "a1", "b0", "b1")], PLAIN)
    assert len(reports) == 4 and any("may be parts of more than one job" in item.issue for item in reports[0].health)


@pytest.fixture
def runs(repo_root: Path, tmp_path: Path) -> Path:
    """Two runs, with a damaged trace beside one of them."""
    for name in ("first", "second"):
        shutil.copytree(repo_root / "sample_traces" / "late_loader" / "traces", tmp_path / name)
    (tmp_path / "second" / "broken.json").write_bytes(b"\xff\xfe\x00 no trace at all")
    return tmp_path


@pytest.mark.parametrize("given", [("first", "second"), ("second", "first"), (".",)])
def test_a_note_is_told_of_its_own_run(runs: Path, given: tuple[str, ...]) -> None:
    loaded = load_runs([str(runs / name) for name in given], PLAIN)
    told = {Path(run.job.ranks[0].path).parent.name: sum("broken.json" in n.issue for n in run.notes) for run in loaded}
    assert told == {"first": 0, "second": 1}


def test_a_note_above_all_runs_is_told_of_all(runs: Path) -> None:
    (runs / "broken_above.json").write_bytes(b"\xff\xfe\x00 no trace at all")
    assert [sum("broken_above.json" in n.issue for n in run.notes) for run in load_runs([str(runs)], PLAIN)] == [1, 1]


def test_many_small_files_cost_their_sum() -> None:
    """Within a test's CPU time: in pairs, each of these takes minutes."""
    many, stated = range(4096), Identity(0, "distributedInfo", 1 << 20)
    names = [f"/r/rank{at}.node{at}.1.0.{suffix}" for at in many for suffix in ("pt.trace.json", "sidecar.json")]
    files = [Source(name, "kineto" if "trace" in name else "run_file") for name in names]
    manifests = [Source(f"/r/manifest.node{at}.json", "run_file") for at in many]
    attached, _ = attach([*files, *manifests])
    assert [s.sidecar_path for s in attached] == names[1::2] and all(len(s.manifest_paths) == 1 for s in attached)
    runs = tuple((str(at), (Source(f"/r/{at}/t.json", "kineto"),)) for at in many)
    told = notes_by_run(Inventory((), tuple(HealthNote("", "", where=f"/r/{at}/x/y.json") for at in many), runs))
    assert {len(notes) for notes in told} == {1}
    ranks, notes = resolve_identities([stated] * 1000, [f"{at}.json" for at in range(1000)])
    assert [one.rank for one in ranks] == [0] + [None] * 999 and len(notes) == 999
    alone = [Recording(Identity(0, "order"), f"{at}.json", (at * 2 * 10**9, at * 2 * 10**9 + 1)) for at in range(2000)]
    assert len(split_jobs(alone)) == 2000
