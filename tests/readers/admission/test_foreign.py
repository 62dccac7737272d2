"""Profiles of other tools are refused by name, with what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from reading import traces

from ddprof.errors import NoUsableInput
from ddprof.readers import discover

FILES = {
    "nsys export": b"NVIDIA Tegra Profiler Report 1.\n\x0bLocal (CLI)",
    "git lfs pull": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n",
    "git annex get": b"/annex/objects/SHA256E-s3--00.json\n",
    "no plane is whole|XPlane": b'\n\xa1\xf0\x08\x12\x0e/host:metadata"\xbf\x14',
    "rocprofv3": b'{"rocprofiler-sdk-tool":[{"metadata":{"node":{"id":0}}}]}',
    "an execution trace": b'{"workload_graph": [{"Id": 1, "Name": "aten::mm", "data_deps": []}]}',
}


@pytest.mark.parametrize("words", FILES)
@pytest.mark.parametrize("name", ["profile.pt.trace.json", "profile.bin"])
def test_a_file_of_another_tool_is_refused_by_name(tmp_path: Path, words: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[words])
    with pytest.raises(NoUsableInput, match=words) as refused:
        discover([str(path)])
    assert "\n" not in str(refused.value)


def test_several_execution_traces_and_the_database_of_dlprof_are_called_so(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"chakra.{rank}.json").write_bytes(FILES["an execution trace"])
    with pytest.raises(NoUsableInput, match="2 files are execution traces"):
        discover([str(tmp_path)])
    path = tmp_path / "dlprof_dldb.sqlite"
    with sqlite3.connect(path) as database:
        for table in ("read_only_model_info (id INTEGER)", "NVTX_EVENTS (start INTEGER, globalTid INTEGER)"):
            database.execute(f"CREATE TABLE {table}")
    with pytest.raises(NoUsableInput, match="DLProf"):
        traces(path)


@pytest.mark.parametrize("content", [b'{"version": "https://git-lfs"}', b"\n\n{}", b"version 2\n"])
def test_other_content_is_not_taken_for_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(NoUsableInput) as refused:
        discover([str(path)])
    assert not any(words in str(refused.value) for words in FILES)
