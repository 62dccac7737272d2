"""What `--ranks` takes."""

import pytest

from ddprof.analyzers.sampling.ranks_option import parse_ranks
from ddprof.errors import UsageError


@pytest.mark.parametrize(
    ("text", "named", "count", "one_more"),
    [
        *(("0,7", (0, 7), None, "0,7,9"), ("7,7", (7,), None, "7,9"), ("sample:32", (), 32, "sample:33,9")),
        ("sample:32,7", (7,), 32, "sample:33,7,9"),
    ],
)
def test_ranks(text: str, named: tuple[int, ...], count: int | None, one_more: str) -> None:
    wanted = parse_ranks(text)
    assert (wanted.named, wanted.count, wanted.is_all) == (named, count, False)
    assert wanted.and_rank(9) == one_more


@pytest.mark.parametrize("text", ["", "some", "1,x", "sample:", "sample:0", "sample:2,sample:3", "-1", "0,,7"])
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="want all, a list like 0,7, sample:32, or sample:32,7"):
        parse_ranks(text)
