"""Names of files, with ranks and stamps, and pickles that ask for code or for all memory, which are refused."""

import os
import pickle
from contextlib import suppress
from functools import reduce
from pathlib import Path
from random import Random

import pytest
from reading import traces

from ddprof.errors import NoUsableInput
from ddprof.readers.files import safe_pickle
from ddprof.readers.files.names import rank_in_name, without_stamp

RANKS = {"rank12.json": 12, "run_r5.json": 5, "trace_rank_3.json": 3, "trace1.json": 1}
RANKS |= {"rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz": 34, "worker0_step_12.1694128201545.pt.trace.json.gz": 0}
RANKS |= {"rank3.host.999.0.pt.trace.json": 3, "global_rank7_local_rank3.json": 7}
SILENT = ("gpu-worker-00_4013.1764638676001234567.pt.trace.json.gz", "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
SILENT += ("control.json.gz", "franks2.json", "llama_trace_4layers0_dim_1024.json.gz")
SILENT += ("rank10000000000000000000000000000000000000000.pt.trace.json", f"rank{'9' * 5000}.json")


@pytest.mark.parametrize(("name", "rank"), [*RANKS.items(), *((name, None) for name in SILENT)])
def test_ranks_in_names(name: str, rank: int | None) -> None:
    assert rank_in_name(f"/some/rank9/{name}") == rank


def test_windows_of_one_process_have_one_name() -> None:
    assert {without_stamp(f"h_77.{stamp}.pt.trace.json") for stamp in (1623143089861, 1623143099861)} == {"h_77"}


def test_pickles_that_ask_for_code_are_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path}/owned",)

    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"pg_config": {}, "entries": [Evil()]}, protocol=2))
    with pytest.raises(NoUsableInput, match="refused"):
        traces(tmp_path)
    assert not (tmp_path / "owned").exists()


LAUGHS = reduce(lambda value, _: [value, value], range(24), list[object]())
BOMBS = {
    "a list of every byte": b"\x80\x02(" + b"]" * 5000 + b"l.",
    "an index of any size": b"\x80\x02]r\xff\xff\xff\x7f.",
    "shared values": pickle.dumps({"entries": LAUGHS}, protocol=2),
    "nested tuples": b"\x80\x02" + b"(" * 500 + b"t" * 500 + b".",
    "a length beyond the file": b"\x80\x04\x8e" + (10**11).to_bytes(8, "little") + b"x.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_pickles_that_would_fill_memory_are_damaged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_pickle, "MAX_INSTRUCTIONS", 4000)
    monkeypatch.setattr(safe_pickle, "MAX_VALUES", 4000)
    with pytest.raises(ValueError, match="pickle"):
        safe_pickle.load_plain(BOMBS[name])


def test_flipped_bytes_are_one_kind_of_error() -> None:
    sound, random = pickle.dumps({"entries": [{"process_group": ("0", "dp"), "sizes": [[2]]}]}, protocol=2), Random(3)
    for _ in range(300):
        broken = bytearray(sound)
        broken[random.randrange(len(broken))] = random.randrange(256)
        with suppress(ValueError, safe_pickle.UnsafePickle):
            safe_pickle.load_plain(bytes(broken))
