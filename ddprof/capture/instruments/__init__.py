"""Instrumentors, one per concern: symmetric (`install`, `uninstall`), idempotent, restoring what they replaced."""

from __future__ import annotations
