"""Bounded numbers of untrusted files, which must fit their columns."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

Whole: TypeAlias = Annotated[int, Meta(ge=-(2**62), le=2**62)]  # two of them, and their difference, fit int64 columns
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**62)]  # also a duration, or a time since 1970 (until 2116), in ns
Rank: TypeAlias = Annotated[int, Meta(ge=0, le=2**20)]  # or a number of ranks: ten times the largest clusters announced
Real: TypeAlias = Annotated[float, Meta(ge=-1e300, le=1e300)]  # finite
