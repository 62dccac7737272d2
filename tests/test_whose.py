"""A time that few ranks alone have is theirs: no finding can be made that says it of the whole job."""

from contextlib import nullcontext

import pytest

from ddprof.findings import Basis, Candidate
from ddprof.whose import whose

CASES = [((0.8, 20.0), [1]), ((8.0, 20.0), []), ((20.0, 0.0, 1.0, 18.0), [0, 3]), ((20.0, 20.0, 20.0, 0.0), [])]
CASES += [((0.0, 0.0), []), ((5.0,), []), ((), [])]


@pytest.mark.parametrize(("times", "who"), CASES)
def test_whose_a_time_is(times: tuple[float, ...], who: list[int]) -> None:
    assert whose(times).tolist() == who
    with pytest.raises(ValueError, match="few ranks alone") if who else nullcontext():
        assert Candidate("host.x", "Python waits", 1.0, Basis.RECORDED, times_us=times).times_us == times
    assert Candidate("host.x", "", 1.0, Basis.RECORDED, (1,), times_us=times).ranks == (1,)
