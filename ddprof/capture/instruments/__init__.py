"""One instrumentor per concern: symmetric (`install`, `uninstall`), idempotent, giving back the very object it replaced."""

from __future__ import annotations
