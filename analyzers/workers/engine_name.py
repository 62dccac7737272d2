"""The value of `--engine`: this machine's processes, a Dask cluster made for the analysis, or an existing one."""

from __future__ import annotations

from msgspec import Struct

from ddprof.errors import UsageError

LOCAL, DASK = "local", "dask"
_SCHEMES = {"dask://": "tcp://", "dask+tls://": "tls://"}


class EngineName(Struct, frozen=True):
    """`text` as it was given; `address`: the scheduler's, as Dask writes it, None where there is none yet."""

    text: str
    is_dask: bool = False
    address: str | None = None


def parse_engine(text: str) -> EngineName:
    """The engine of that name. Raises UsageError."""
    if text in (LOCAL, DASK):
        return EngineName(text, text == DASK)
    for ours, theirs in _SCHEMES.items():
        host, sign, port = text.removeprefix(ours).rstrip("/").rpartition(":")
        if text.startswith(ours) and host and sign and port.isdigit():
            return EngineName(text, True, f"{theirs}{host}:{port}")
    raise UsageError(f"--engine {text}: want local, dask or dask://HOST:PORT")
