"""Parts of the job, read from its live objects into plain JSON; neither user code nor the device is called."""

from __future__ import annotations
