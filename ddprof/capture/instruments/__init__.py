"""Instrumentors, one per concern: symmetric (`install`, `uninstall`), idempotent, restoring what they replaced."""
