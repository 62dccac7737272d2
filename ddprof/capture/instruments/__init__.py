"""One instrumentor per concern: symmetric (`install`, `uninstall`), idempotent, giving back what it replaced."""

from __future__ import annotations
