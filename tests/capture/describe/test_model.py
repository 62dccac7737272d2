"""Settings of a model as its script wrote them."""

import pytest

from ddprof.capture.describe.model import _as_given_mib


@pytest.mark.parametrize("cap_mb", [25, 0.001, 0.02, 12.5, 1 / 3, 1e6])
def test_a_bucket_size_is_told_as_the_script_wrote_it(cap_mb: float) -> None:
    told = _as_given_mib(int(cap_mb * 2**20))
    assert int(told * 2**20) == int(cap_mb * 2**20) and len(f"{told:.17g}") <= max(4, len(f"{cap_mb:.17g}"))


def test_a_bucket_size_that_no_float_holds_is_told_all_the_same() -> None:
    assert _as_given_mib(2**53 + 1) == pytest.approx(2**33)
