"""One defect costs one event: all others are kept, and what is lost is counted, with and without the native scanner."""

import re
from contextlib import suppress
from pathlib import Path

import kineto_text as kt
import pytest
from reading import issues

from ddprof.errors import NoUsableInput
from ddprof.model import RankTrace
from ddprof.readers import Source, read
from ddprof.readers.files import unpacking
from ddprof.readers.json_text import damage, salvage, structure

pytestmark = pytest.mark.usefixtures("decoding")
HEADER = {"schemaVersion": 1, "distributedInfo": {"rank": 3, "world_size": 4}}
ARGS = [{"Input Dims": [[n, 2]], "Concrete Inputs": ["", "7"], "External id": n} for n in range(1, 41)]
EVENTS = [kt.span(f"op{n}", 1000 * n, 500, **args) for n, args in enumerate(ARGS, 1)]
BEFORE, HIT = b'{"ph": "X", "cat": "cpu_op", ', b'"name": "op20"'  # in the middle of the list, and of an event


def read_text(path: Path, text: bytes) -> RankTrace:
    path.write_bytes(text)
    return read(Source(str(path), "kineto"))


def sound(layout: str = "compact") -> bytes:
    return kt.render(EVENTS, layout, {**HEADER, "baseTimeNanoseconds": 10**18})


@pytest.fixture(params=[200, 1 << 18], ids=["blocks far smaller than the file", "one block"])
def _in_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "BLOCK_BYTES", request.param)
    monkeypatch.setattr(unpacking, "_RAW_BYTES", request.param)


ODD = [b', "args2": NaN', b', "args2": [-Infinity, 1e400]', b', "x": ' + b"9" * 6000, b', "tid": {"a": []}']
TORN = [b', "x": ' + b"[" * 5000 + b"]" * 5000, b', "x": [1, 2', b', "\\', b"]", b"}", b"\x00"]
TORN += [b', "x": [NaN, {"a": 1}]']  # where text is damaged no list of objects is looked for inside an event
KEPT = [*(HIT + odd for odd in ODD), b'"name": "op\xe920"', b'"name": "op\\ud80020"', b'"name": ["op20"]']
LOST = [*(HIT + odd for odd in TORN), b'"name": "op20', b'"na"me": "op20"']


@pytest.mark.usefixtures("_in_blocks")
@pytest.mark.parametrize("layout", ["compact", "indented", "one_per_line", "header_last"])
@pytest.mark.parametrize("new", [*KEPT, *LOST])
def test_a_defect_of_an_event_costs_no_other(tmp_path: Path, layout: str, new: bytes) -> None:
    trace = read_text(tmp_path / "t.json", sound(layout).replace(HIT, new))
    assert len(trace.events) == (40 if new in KEPT else 39) and trace.identity.rank == 3 and trace.has_base_time
    if new in LOST:
        assert re.search(r"in 1 place lost .* 1 event \(2\.[45] %\) missing", issues(trace))
        assert len([note for note in trace.health if note.severity == "error"]) == 1


@pytest.mark.usefixtures("_in_blocks")
@pytest.mark.parametrize("odd", [b"]", b"}", b"]}", b"}]", b"],", b",,", b"] ", b"xyz", b'"', b"]]]]}}"])
def test_a_stray_bracket_between_events_costs_nothing_but_itself(tmp_path: Path, odd: bytes) -> None:
    text = sound()
    at = text.index(BEFORE + HIT)
    trace = read_text(tmp_path / "t.json", text[:at] + odd + text[at:])
    assert len(trace.events) == 40 and trace.has_base_time and "damaged text at byte" in issues(trace)


@pytest.mark.usefixtures("_in_blocks")
@pytest.mark.parametrize("cut", [b'"Concrete Inputs": ["', b'"args": {', b'"name": "o'])
def test_a_cut_costs_that_event(tmp_path: Path, cut: bytes) -> None:
    text = sound()
    at = text.index(cut, text.index(HIT) - 40) + len(cut)
    trace = read_text(tmp_path / "t.json", text[:at] + text[text.index(BEFORE + b'"name": "op21"') :])
    assert len(trace.events) == 39 and "1 event (2.5 %) missing" in issues(trace)


def test_the_note_says_how_much_is_lost_and_from_when(tmp_path: Path) -> None:
    text = sound().replace(HIT, HIT + b"]").replace(b'"name": "op30"', b'"name": "op30"]')
    (note,) = read_text(tmp_path / "t.json", text).health
    assert "bytes in 2 places lost (" in note.issue and " % of the file)" in note.issue
    assert note.effect == "2 events (5 %) missing, of times 20.000 to 30.000 us; all others are used"
    trace = read_text(tmp_path / "t.json", sound() + sound())  # a second document is no part of the first
    assert len(trace.events) == 40 and "40 events (50 %) missing" in issues(trace)


PIECES = [b"{", b" ", b"{ ", b'"', b'{"', b'{\\"', b'{"{"', b'{"a":', b'{"ph":', b'{"ph":"X","args":{"ts":1},', b"["]
PIECES += [b"]", b"}", b"] ", b"{},", b",", b"\\", b'{"a":[]}]', b'],"traceName":', b'"distributedInfo":{']
BOMB_BYTES = 1 << 16
SPAN = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1},'


@pytest.mark.parametrize("piece", PIECES)
def test_time_is_linear_in_text_that_is_no_events(tmp_path: Path, piece: bytes) -> None:
    """Each text takes a tenth of a second at most; in quadratic time it would be seconds, or minutes."""
    odd = piece * (BOMB_BYTES // len(piece))
    texts = (b'{"traceEvents": [' + SPAN + odd + SPAN + b"]}", b"{" + odd, b'{"traceEvents": [], ' + odd)
    for text in (*texts, b"[" + SPAN + odd, b"[" + SPAN[:-1] + odd):
        with suppress(NoUsableInput):
            read_text(tmp_path / "t.json", text)


def test_damage_everywhere_is_given_up_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage, "MOST_VAIN_BYTES", 10 << 10)
    trace = read_text(tmp_path / "t.json", b'{"traceEvents": [' + SPAN + b'{"ph":"X",1},' * 50 + SPAN + b"{}]}")
    assert len(trace.events) == 1 and "51 events (98 %) missing" in issues(trace)
    monkeypatch.setattr(damage, "MOST_FRUITLESS_BYTES", 1 << 16)
    assert "no event in" in issues(read_text(tmp_path / "t.json", b'{"traceEvents": [' + b"}" * (1 << 22) + b"]}"))
    monkeypatch.setattr(structure, "MAX_HEADER_BYTES", 1 << 16)
    with pytest.raises(NoUsableInput, match="without a list of trace events"):
        read_text(tmp_path / "t.json", b'{"a": "' + b"x" * (1 << 20) + b'", "traceEvents": [' + SPAN[:-1] + b"]}")
