"""Files that are no trace are refused in one true line."""

import re
import sqlite3
from pathlib import Path

import pytest
from reading import FORMATS, MALFORMED, refusal, traces

from ddprof.errors import NoUsableInput
from ddprof.readers.admission.sniff import sniff
from ddprof.readers.format import Sample

FILES = {
    "nsys export": b"NVIDIA Tegra Profiler Report 1.\n\x0bLocal (CLI)",
    "git lfs pull": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n",
    "git annex get": b"/annex/objects/SHA256E-s3--00.json\n",
    "without a complete plane|XPlane": b'\n\xa1\xf0\x08\x12\x0e/host:metadata"\xbf\x14',
    "a profile of speedscope": b'{\n "$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {}}',
    "rocprofv3": b'{"rocprofiler-sdk-tool":[{"metadata":{"node":{"id":0}}}]}',
    "a memory timeline": b"[[10, 20, 30, 40, 50, 60, 70, 80], [[0, 8]]]",
    "a memory timeline.*snapshot": b"[[10, -1, [5, 0], 4096, 6], [20, 1, [5, 0], 4096, 6]]",
    "a memory timeline.*`ddprof memory`": b"[[-1, 1, 37888, 7], [1680731, 2, 512, 4]]",
    "Chakra .protobuf.": b"^\x12\x10\n\x06schema\xea\x01\x051.0.1\x12\t\n\x03pid",
    "Chakra .protobuf., which has no timeline": b"\x07\n\x050.0.4\x1e\x08\x01\x12\x03mm0",
    "a memory timeline of PyTorch": b"<html><head><meta /><title>GPU Memory Timeline HTML</title></head></html>",
    "debug log of NCCL": b"\nvm:617:640 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7c40 count 1 datatype 7 op 0\n",
    "a log of a training that prints no time of a step": b"start\n"
    + b"[Epoch 7 Batch 100/171] loss=0.0964, acc=0.9\n" * 3,
    "text of nvprof": b"==18148== NVPROF is profiling process 18148, command: python train.py\n",
    "events of DLRover": b'[2025-04-21T23:31:09.074419] [426] [22b7] [Trainer] [#step] [BEGIN] {"global_step": 7}\n',
    "collapsed stacks": b"a.py(1):main;b.py(2):step 12\r\na.py(1):main;b.py(3):log 4\r\n",
    "an execution trace": b'{"workload_graph": [{"Id": 1, "Name": "aten::mm", "data_deps": []}]}',
}


def test_execution_traces_and_the_database_of_dlprof_are_called_so(shared_dir: Path, tmp_path: Path) -> None:
    said = refusal(shared_dir / FORMATS / "execution_trace")
    assert "this is an execution trace, not a timeline; capture one with" in said
    for rank in range(2):
        (tmp_path / f"chakra.{rank}.json").write_bytes(FILES["an execution trace"])
    assert "2 files are execution traces" in refusal(str(tmp_path))
    with sqlite3.connect(tmp_path / "dlprof_dldb.sqlite") as database:
        database.execute("CREATE TABLE read_only_model_info (id INTEGER)")
        database.execute("CREATE TABLE NVTX_EVENTS (start INTEGER, globalTid INTEGER)")
    with pytest.raises(NoUsableInput, match="DLProf"):
        traces(tmp_path / "dlprof_dldb.sqlite")


@pytest.mark.usefixtures("decoding")
@pytest.mark.parametrize("name,reason", [("empty.json", "an empty file"), ("html_error_page.json", "an HTML page")])
def test_what_is_no_trace_is_one_true_line(shared_dir: Path, name: str, reason: str) -> None:
    assert f"{name}: {reason}" in refusal(shared_dir / MALFORMED / name)


def test_a_literal_of_a_mark_alone_is_no_mark() -> None:
    mark, literals = re.compile(rb'"CYCLE_START"|"NEGOTIATE_[A-Z]+'), (b'"CYCLE_START"', b'"NEGOTIATE_')
    assert Sample(b'[{"name": "NEGOTIATE_ALLREDUCE"}]').has(mark, literals)
    assert not Sample(b'[{"name": "NEGOTIATE_2"}]').has(mark, literals)
    assert not Sample(b'[{"name": "aten::add"}]').has(mark, literals)
    # What libkineto begins is its own whatever words its events hold.
    named_alike = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "NEGOTIATE_ALLREDUCE"}]}'
    assert sniff(Sample(named_alike)).format == "kineto"
    assert sniff(Sample(named_alike.replace(b'"schemaVersion": 1, ', b""))).format == "horovod"
    assert sniff(Sample(b'{"schemaVersion": 1, "notes": []}')).format is None


@pytest.mark.parametrize("words", FILES)
@pytest.mark.parametrize("name", ["profile.pt.trace.json", "profile.bin"])
def test_a_file_of_another_tool_is_refused_by_name(tmp_path: Path, words: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[words])
    assert re.search(words, refusal(str(path)))


@pytest.mark.parametrize("content", [b'{"version": "https://git-lfs"}', b"\n\n{}", b"version 2\n"])
def test_other_content_is_not_taken_for_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    assert not any(words in refusal(str(path)) for words in FILES)


def test_a_log_of_training_may_begin_with_megabytes_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(FILES["debug log of NCCL"] * 20_000)
    assert "debug log of NCCL" in refusal(str(path))
    with path.open("ab") as file:
        file.write(b" iteration 7/ 9 | elapsed time per iteration (ms): 1000.0 | lm loss: 1.0 |\n")
    assert "a training log" in refusal(str(path))
