"""Readers of text are tested with and without the native scanner."""

from collections.abc import Iterator

import pytest

from ddprof.readers.json_text.scanned import is_native


@pytest.fixture(scope="module", params=["native", "msgspec"])
def decoding(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything twice: with the native scanner, if it was built, and without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDPROF_NATIVE", "1" if request.param == "native" else "0")
        if request.param == "native" and not is_native():
            pytest.skip("the native scanner was not built (no C compiler or no Python.h)")
        yield
