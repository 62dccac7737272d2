"""One instrumentor per concern. Each is symmetric (`install`, `uninstall`), idempotent, and gives back the very
object it replaced."""

from __future__ import annotations
