"""What the job is made of, read from its live objects into plain JSON; no user code, no device is called."""

from __future__ import annotations
