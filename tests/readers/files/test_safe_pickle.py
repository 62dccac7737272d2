"""Pickles that ask for code or for all memory are refused."""

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
