"""Starts capture, with the appliers, in a process that is to apply fixes or to end after some steps. Called by the
shim's sitecustomize in place of bootstrap.
"""

from __future__ import annotations

from types import ModuleType

from ddprof.capture import bootstrap
from ddprof.capture.applying.finished import GradientCompressionApplier, PrefetchApplier
from ddprof.capture.applying.loaders import LoaderSettingsApplier
from ddprof.capture.applying.model_calls import AutocastApplier, CompileApplier
from ddprof.capture.applying.optimizers import OptimizerSettingsApplier, ZeroGradApplier
from ddprof.capture.applying.outcomes import Outcomes
from ddprof.capture.applying.process import ProcessSettings
from ddprof.capture.applying.wrappers import (
    DdpSettingsApplier,
    DeepSpeedSettingsApplier,
    Fsdp1SettingsApplier,
    Fsdp2SettingsApplier,
)
from ddprof.capture.describe.model import FSDP2_MODULES
from ddprof.capture.hub import Hub
from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.session import Session
from ddprof.capture.trial.end import TrialEnd
from ddprof.settings.wanted import unpacked

_APPLIERS = (
    LoaderSettingsApplier,
    DdpSettingsApplier,
    Fsdp1SettingsApplier,
    OptimizerSettingsApplier,
    ZeroGradApplier,
    DeepSpeedSettingsApplier,
    GradientCompressionApplier,
)
# The module that has a wrapper, its class ("": a function) and what makes it.
_WRAPPERS = (
    ("torch.nn.parallel.distributed", "DistributedDataParallel", "__init__"),
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel", "__init__"),
    *((module, "", "fully_shard") for module in FSDP2_MODULES),
)


def start(settings: str, torch: ModuleType) -> Session:
    """Session of `bootstrap.start` that also applies fixes and ends the script. Raises ValueError on bad settings."""
    return bootstrap.start(settings, torch, more)


def more(hub: Hub) -> list[Instrumentor]:
    """Instrumentors that the settings require."""
    instrumentors = _appliers(hub) if hub.config.apply else []
    return [*instrumentors, TrialEnd(hub)] if hub.config.end_after else instrumentors


def _appliers(hub: Hub) -> list[Instrumentor]:
    """Appliers for the fixes' kinds of object, and the recorder of all outcomes. Raises ValueError on bad settings."""
    outcomes = Outcomes(unpacked(hub.config.apply))
    wanted = {target for fix in outcomes.fixes for target in fix.targets}
    appliers: list[Instrumentor] = [applier(hub, outcomes) for applier in _APPLIERS if applier.target in wanted]
    if Fsdp2SettingsApplier.target in wanted:
        appliers += [Fsdp2SettingsApplier(hub, outcomes, module) for module in FSDP2_MODULES]
    if PrefetchApplier.target in wanted:
        appliers += [PrefetchApplier(hub, outcomes, module) for module in FSDP2_MODULES]
    for applier in (CompileApplier, AutocastApplier):  # in this order: what is compiled is called under autocast
        if applier.target in wanted:
            appliers += [applier(hub, outcomes, *wrapper) for wrapper in _WRAPPERS]
    return [*appliers, ProcessSettings(hub, outcomes)]
