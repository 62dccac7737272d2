"""What is no trace is refused in one true line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from reading import FORMATS, MALFORMED

from ddprof.errors import NoUsableInput
from ddprof.readers import discover
from ddprof.readers.admission.sniff import sniff
from ddprof.readers.format import Sample


def test_an_execution_trace_is_recognised(shared_dir: Path) -> None:
    with pytest.raises(NoUsableInput, match="this is an execution trace, not a timeline; capture one with"):
        discover([shared_dir / FORMATS / "execution_trace"])


@pytest.mark.usefixtures("decoding")
@pytest.mark.parametrize(
    ("name", "reason"), [("empty.json", "an empty file"), ("html_error_page.json", "an HTML page")]
)
def test_what_is_no_trace_is_one_true_line(shared_dir: Path, name: str, reason: str) -> None:
    with pytest.raises(NoUsableInput, match=f"{name}: {reason}") as caught:
        discover([shared_dir / MALFORMED / name])
    assert "\n" not in str(caught.value)


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
