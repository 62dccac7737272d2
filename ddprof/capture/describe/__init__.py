"""What the job is made of, read from its live objects into plain JSON. Read only: nothing here calls user code or a
device."""

from __future__ import annotations
