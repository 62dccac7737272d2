"""Starts capture in a process that is to apply fixes or to end after some steps. Called by the shim's sitecustomize in
place of bootstrap."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from ddprof.capture import bootstrap
from ddprof.capture.applying.appliers import appliers
from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.session import Session
from ddprof.capture.trial.end import TrialEnd

if TYPE_CHECKING:
    from ddprof.capture.hub import Hub


def start(settings: str, torch: ModuleType) -> Session:
    """As `bootstrap.start`, with what applies the fixes and what ends the script. Raises ValueError on damaged
    settings."""
    return bootstrap.start(settings, torch, more)


def more(hub: Hub) -> list[Instrumentor]:
    """What the settings ask for."""
    found = appliers(hub) if hub.config.apply else []
    return [*found, TrialEnd(hub)] if hub.config.end_after else found
