"""Tables of exhibits: quoted as CSV, what is not shown is counted, names are as long as tells them apart."""

import csv
import io

import pytest

from ddprof.dashboard.exhibits.parts.exhibit import MOST_CHARS, Named, Nested, Sheet, sheet, short_name

SHORTENED = [
    ("void at::native::f<4, at::native::Add<c10::Half> >(int, long)", "f<4, Add<Half> >"),
    ("void (anonymous namespace)::norm<float>(int, float (*)(int))", "norm<float>"),
    ("ncclDevKernel_AllReduce_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllReduce_RING_LL"),
    ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
    ("aten::mm", "aten::mm"),
]  # fmt: skip


def test_csv_is_quoted_rows_left_out_state_their_share_and_long_names_keep_the_end() -> None:
    text = sheet(("name (x)", "value"), [('=HYPERLINK("x")', 1.5), ("a,b\nc", None)]).csv()
    rows = list(csv.reader(io.StringIO(text)))
    assert rows == [["name (x)", "value"], ['\'=HYPERLINK("x")', "1.5"], ["a,b?c", ""]]
    ranked = Sheet(("kernel", "% of the step"), tuple((Named(f"k{n}"), 10.0 - n) for n in range(10)), True, 1)
    assert ranked.rest(10) == "" and ranked.rest(8) == "2 more rows, together 3 % of the step"
    assert ranked.rest(9) == "1 more row, together 1 % of the step"
    assert len(short_name("k" * 200)) == MOST_CHARS
    assert Nested("Gpt_0 > " * 20 + "Linear_7").short.endswith("> Linear_7")


@pytest.mark.parametrize(("name", "short"), SHORTENED)
def test_names_of_kernels_lose_what_tells_nothing(name: str, short: str) -> None:
    assert short_name(name) == short
