"""Wrappers of models: DistributedDataParallel, FSDP (both), DeepSpeed's configuration."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from ddprof.capture.applying.applier import Applier, ConstructorCall, Refusal, Values
from ddprof.settings.catalogue import DDP, DEEPSPEED, FSDP1, FSDP2
from ddprof.untrusted.regular_files import read_bounded

_FIRST_BUCKET, _FIRST_BUCKET_BYTES = "first_bucket_mb", "_DEFAULT_FIRST_BUCKET_BYTES"
_MIB = 2**20


class DdpSettingsApplier(Applier):
    """Changes `DistributedDataParallel.__init__`."""

    target = DDP

    def _install(self, module: ModuleType) -> None:
        self._dist: Any = module.distributed
        self.watch(module.nn.parallel.DistributedDataParallel, "__init__")

    def refusal(self, call: ConstructorCall, arguments: Values, wanted: Values) -> Refusal | None:
        """Refuse only settings without effect: DDP refuses the rest itself."""
        for name in ("bucket_cap_mb", _FIRST_BUCKET):
            if name in wanted and arguments.get("bucket_cap_mb_list"):
                return name, "the script sets the size of each bucket (bucket_cap_mb_list)"
        if _FIRST_BUCKET in wanted:
            if not hasattr(self._dist, _FIRST_BUCKET_BYTES):
                return _FIRST_BUCKET, "this torch has no such default"
            if arguments.get("bucket_cap_mb") is not None:
                return _FIRST_BUCKET, "the script sets bucket_cap_mb, which DDP takes for the first bucket too"
        return super().refusal(call, arguments, wanted)

    def arguments_for(self, arguments: Values, wanted: Values) -> Values:
        """The arguments, without the first bucket's size, which is none."""
        return {name: value for name, value in wanted.items() if name != _FIRST_BUCKET}

    @contextmanager
    def around(self, wanted: Values) -> Iterator[None]:
        """Set torch's constant for the first bucket's size, which DDP reads at construction."""
        before = getattr(self._dist, _FIRST_BUCKET_BYTES, None)
        if _FIRST_BUCKET in wanted:
            setattr(self._dist, _FIRST_BUCKET_BYTES, int(wanted[_FIRST_BUCKET] * _MIB))
        try:
            yield
        finally:
            if _FIRST_BUCKET in wanted:
                setattr(self._dist, _FIRST_BUCKET_BYTES, before)

    def present(self, arguments: Values, name: str) -> Any:
        """The argument, or torch's constant."""
        if name != _FIRST_BUCKET:
            return arguments.get(name)
        return getattr(self._dist, _FIRST_BUCKET_BYTES, 0) / _MIB


class Fsdp2SettingsApplier(Applier):
    """Changes calls of `fully_shard` from the import of its module on, so that all importers get ours."""

    target = FSDP2

    def _install(self, module: ModuleType) -> None:
        self.watch(module, "fully_shard")


_KEPT_STRATEGY = {"FULL_SHARD": "SHARD_GRAD_OP", "HYBRID_SHARD": "_HYBRID_SHARD_ZERO2"}
_PREFETCH = {"pre": "BACKWARD_PRE", "post": "BACKWARD_POST"}


class Fsdp1SettingsApplier(Applier):
    """Changes `FullyShardedDataParallel.__init__`; auto-wrapped units get the same arguments."""

    target = FSDP1
    module = "torch.distributed.fsdp.fully_sharded_data_parallel"

    def _install(self, module: ModuleType) -> None:
        self._source: Any = module
        self.watch(module.FullyShardedDataParallel, "__init__")

    def refusal(self, call: ConstructorCall, arguments: Values, wanted: Values) -> Refusal | None:
        """Refuse strategies that do not shard, and whatever this torch lacks."""
        if "reshard_after_forward" in wanted and self._strategy(arguments, wanted) is None:
            return "reshard_after_forward", f"sharding_strategy is {arguments['sharding_strategy'].name}"
        return super().refusal(call, arguments, wanted)

    def arguments_for(self, arguments: Values, wanted: Values) -> Values:
        """Strategies and prefetching as members of torch's enumerations."""
        values = dict(wanted)
        if "reshard_after_forward" in values:
            del values["reshard_after_forward"]
            values["sharding_strategy"] = self._strategy(arguments, wanted)
        if "backward_prefetch" in values:
            name = _PREFETCH.get(values["backward_prefetch"])
            values["backward_prefetch"] = None if name is None else self._source.BackwardPrefetch[name]
        return values

    def present(self, arguments: Values, name: str) -> Any:
        """The argument's value; of `reshard_after_forward`, True where the sharding strategy says so."""
        if name != "reshard_after_forward":
            return arguments.get(name)
        strategy = getattr(arguments.get("sharding_strategy"), "name", "FULL_SHARD")
        return strategy in _KEPT_STRATEGY

    def _strategy(self, arguments: Values, wanted: Values) -> Any:
        name = getattr(arguments.get("sharding_strategy"), "name", "FULL_SHARD")
        resharding = name if name in _KEPT_STRATEGY else {v: k for k, v in _KEPT_STRATEGY.items()}.get(name)
        if resharding is None:
            return None
        return self._source.ShardingStrategy[
            resharding if wanted["reshard_after_forward"] else _KEPT_STRATEGY[resharding]
        ]


_SECTION = "zero_optimization"
_MAX_CONFIG_BYTES = 4 << 20


class DeepSpeedSettingsApplier(Applier):
    """Changes the configuration read by `DeepSpeedConfig`: a copy of the script's dictionary, or of its file."""

    target = DEEPSPEED
    module = "deepspeed.runtime.config"

    def _install(self, module: ModuleType) -> None:
        self.watch(module.DeepSpeedConfig, "__init__")

    def refusal(self, call: ConstructorCall, arguments: Values, wanted: Values) -> Refusal | None:
        """Refuse a configuration that is unreadable here, or has no ZeRO to set."""
        name = next(iter(wanted))
        config = _config(arguments)
        if config is None:
            return name, "the configuration is neither a dictionary nor a file of JSON"
        section = config.get(_SECTION)
        if not isinstance(section, dict) or section.get("stage") not in (1, 2, 3):
            return name, "ZeRO is off in the configuration"
        return None

    def arguments_for(self, arguments: Values, wanted: Values) -> Values:
        """The configuration with the values in its ZeRO section."""
        config = copy.deepcopy(_config(arguments) or {})
        config[_SECTION] = {**config[_SECTION], **wanted}
        return {"config": config}

    def present(self, arguments: Values, name: str) -> Any:
        """The value in the configuration; None where it keeps the default."""
        return ((_config(arguments) or {}).get(_SECTION) or {}).get(name)


def _config(arguments: Values) -> dict[str, Any] | None:
    given = arguments.get("config")
    if isinstance(given, dict):
        return given
    if not isinstance(given, str):
        return None
    try:
        read = json.loads(read_bounded(given, _MAX_CONFIG_BYTES))
    except (OSError, ValueError):
        return None
    return read if isinstance(read, dict) else None
