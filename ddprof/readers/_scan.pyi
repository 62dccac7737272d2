"""The native scanner: see `json_text/scanned.py` and `native/scan.c`."""

from typing import Any

class Scanner:
    """Numbers names, tracks and categories in the mappings it is given."""

    def __init__(self, strings: dict[Any, int], tracks: dict[Any, int], categories: dict[str, int]) -> None: ...
    def scan(self, text: bytes, /) -> tuple[bytes, ...] | None:
        """The columns of a JSON list of events, in the order of `scanned.Block`; None where msgspec must read it."""
