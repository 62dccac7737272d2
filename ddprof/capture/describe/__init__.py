"""Descriptions of the job's live objects as plain JSON; neither user code nor the device is called."""

from __future__ import annotations
