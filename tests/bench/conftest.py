"""Labelled runs, as the tests of the analysis have them."""

from __future__ import annotations

from tests.analyzers.conftest import labelled

__all__ = ["labelled"]
