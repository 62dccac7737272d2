"""The table of formats: every file of the folder is one, and they are asked in an order that is right."""

import ast
from pathlib import Path

import pytest

from ddprof.readers import formats as room
from ddprof.readers.format import Sample
from ddprof.readers.formats import formats
from ddprof.slice import all_slices

FOLDER = Path(room.__file__).parent
SOURCES = [*FOLDER.glob("[!_]*.py"), *FOLDER.glob("*/__init__.py")]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_each_ends_in_its_format_and_is_named_after_it(source: Path) -> None:
    last = ast.parse(source.read_text()).body[-1]
    assert isinstance(last, ast.Assign) and ast.unparse(last.targets[0]) == "FORMAT"
    assert (source.stem if source.parent == FOLDER else source.parent.name) in formats()
    assert len(formats()) == len(SOURCES) + sum(len(part.formats) for part in all_slices())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b'{"traceEvents": [{"ph": "X", "name": "forward-compute"}]}', ["op_timeline", "kineto"]),
        (b'[{"ph": "B", "name": "NEGOTIATE_ALLREDUCE"}]', ["horovod", "chrome"]),
        (b'[{"ph": "X", "cat": "cpu_op"}]', ["kineto", "chrome"]),
        (b"SQLite format 3\0 rocpd_api", ["rpd", "nsys"]),
    ],
)
def test_marks_of_its_own_go_before_what_takes_any_events(text: bytes, names: list[str]) -> None:
    """`names`: all that recognise the text, in the order in which they are asked."""
    assert [name for name, candidate in formats().items() if candidate.recognise(Sample(text))] == names
