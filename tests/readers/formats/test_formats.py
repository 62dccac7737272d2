"""The table of formats: every file of the folder is one, asked in an order that is right; and two that say little."""

import ast
from pathlib import Path

import pytest
from reading import FORMATS, names, one_trace, traces

from ddprof.model import Kind
from ddprof.readers import formats as room
from ddprof.readers.columns.groups import number_in_communicator
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


ORDERS = {  # all that recognise a text, in the order in which they are asked
    b'{"traceEvents": [{"ph": "X", "name": "forward-compute"}]}': ["op_timeline", "kineto"],
    b'[{"ph": "B", "name": "NEGOTIATE_ALLREDUCE"}]': ["horovod", "chrome"],
    b'[{"ph": "X", "cat": "cpu_op"}]': ["kineto", "chrome"],
    b"SQLite format 3\0 rocpd_api": ["rpd", "nsys"],
}


@pytest.mark.parametrize(("text", "names"), ORDERS.items())
def test_marks_of_its_own_go_before_what_takes_any_events(text: bytes, names: list[str]) -> None:
    assert [name for name, candidate in formats().items() if candidate.recognise(Sample(text))] == names


def test_nccl_profiler_kernels_belong_to_the_rank_that_launched_them(shared_dir: Path) -> None:
    ranks = traces(shared_dir / FORMATS / "nccl_profiler_jsonl")
    assert [t.identity.local_device for t in ranks] == [0, 1, 2, 3]
    assert [names(t, Kind.KERNEL) for t in ranks] == [["ncclDevKernel_AllReduce_Sum_f32_RING_LL"]] * 4
    for trace in ranks:
        (row,) = trace.collectives.rows()
        assert (row["in_bytes"], row["group_size"]) == (4 * 33554432, 4)
        assert row["seq"] == number_in_communicator("AllReduce", 0)


def test_tensorflow_without_device_events_says_so(shared_dir: Path) -> None:
    trace = one_trace(shared_dir / FORMATS / "tensorflow")
    assert "train_function" in names(trace, Kind.CPU_OP)
    assert any("8 devices but no device events" in h.issue for h in trace.health)
