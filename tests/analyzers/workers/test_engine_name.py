"""Values of `--engine`."""

import pytest

from ddprof.analyzers.workers.engine_name import parse_engine
from ddprof.errors import UsageError


@pytest.mark.parametrize(
    ("text", "is_dask", "address"),
    [
        *(("local", False, None), ("dask", True, None)),
        ("dask://scheduler:8786", True, "tcp://scheduler:8786"),
        ("dask://10.0.0.1:8786/", True, "tcp://10.0.0.1:8786"),
        ("dask://[fe80::1]:8786", True, "tcp://[fe80::1]:8786"),
        ("dask+tls://scheduler:8786", True, "tls://scheduler:8786"),
    ],
)
def test_engines(text: str, is_dask: bool, address: str | None) -> None:
    engine = parse_engine(text)
    assert (engine.text, engine.is_dask, engine.address) == (text, is_dask, address)


@pytest.mark.parametrize("text", ["", "spark", "dask://", "dask://host", "dask://:8786", "tcp://host:8786"])
def test_what_is_no_engine(text: str) -> None:
    with pytest.raises(UsageError, match="want local, dask or dask://HOST:PORT"):
        parse_engine(text)
