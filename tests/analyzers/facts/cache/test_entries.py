"""Facts survive being kept, and what is not exactly what was kept is not trusted."""

from dataclasses import fields, replace
from random import Random

import numpy as np
import pytest
from captured import sidecar_of
from labelled_runs import Runs

from ddprof.analyzers.facts.cache.entries import decode, encode
from ddprof.analyzers.facts.model import SCRIPT_FRAMES, TABLES, RankFacts
from ddprof.tables import Table

KEY = "0123456789abcdef0123"


@pytest.fixture(scope="module")
def facts(labelled: Runs) -> RankFacts:
    """Facts of a rank, with a sidecar and with texts in a table."""
    content = {"steps": [{"start_ns": 1, "end_ns": 2}], "dataloader": {"sampler": {"class": "S"}}, "nccl": None}
    rows = {c.name: ["été.py", ""] if c.dtype == "str" else [1, 2] for c in SCRIPT_FRAMES.columns}
    clean, frames = labelled("clean.ddp").job.ranks[0], SCRIPT_FRAMES.table(rows)
    return replace(clean, sidecar=sidecar_of(content), script_frames=frames)


def test_every_table_and_every_other_fact_survives(facts: RankFacts) -> None:
    again = decode(b"".join(encode(facts, KEY)), KEY)
    assert isinstance(again, RankFacts)
    for name, schema in TABLES.items():
        mine, theirs = getattr(facts, name), getattr(again, name)
        for column in schema.columns:
            a, b = mine[column.name], theirs[column.name]
            assert a.dtype == b.dtype, (name, column)
            assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), (name, column)
    others = [f.name for f in fields(facts) if f.name not in TABLES]
    assert [name for name in others if getattr(facts, name) != getattr(again, name)] == []
    assert {f.name for f in fields(facts) if isinstance(getattr(facts, f.name), Table)} == set(TABLES)


def test_neither_a_flipped_bit_nor_a_part_of_a_file_nor_anything_behind_it_is_trusted(facts: RankFacts) -> None:
    kept, random = b"".join(encode(facts, KEY)), Random(7)
    for _ in range(300):
        flipped = bytearray(kept)
        flipped[random.randrange(len(kept))] ^= 1 << random.randrange(8)
        assert decode(bytes(flipped), KEY) is None

    lengths = [0, 1, len(kept) - 1, *(random.randrange(len(kept)) for _ in range(100))]
    assert [length for length in lengths if decode(kept[:length], KEY) is not None] == []
    assert decode(kept + b"\0", KEY) is None and decode(b"\0" + kept, KEY) is None
    assert decode(kept, KEY[::-1]) is None  # of another key


def test_a_text_that_no_file_can_hold_is_an_error_of_value(facts: RankFacts) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        encode(replace(facts, path="rank\udc80.json"), KEY)
