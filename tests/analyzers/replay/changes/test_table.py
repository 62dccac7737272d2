"""The table of change kinds: each applied in one way, and what is not in it is said."""

import pytest

from ddprof.analyzers.replay.changes.table import KINDS, kind_of
from ddprof.errors import DdprofError
from ddprof.findings import Change


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_applied_in_one_way(name: str) -> None:
    kind = KINDS[name]
    assert sum(how is not None for how in (kind.scenario, kind.retiming, kind.rate)) == 1
    assert set(kind.implies) <= set(KINDS)


def test_an_unknown_kind_is_named_with_the_known_ones() -> None:
    with pytest.raises(DdprofError, match=r"'no_such'; it knows async_launch, .*speed_links$"):
        kind_of(Change("no_such"))
