"""Wrappers of models made with other settings."""

import json
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hubs import applying, told

from ddprof.capture.applying import wrappers
from ddprof.capture.applying.outcomes import Outcomes
from ddprof.settings.wanted import parse_set

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_ddp_takes_all_its_settings_at_once_and_its_first_bucket_is_that_of_one_object(alone: None) -> None:
    stated = ("bucket_cap_mb=12.5", "gradient_as_bucket_view=true", "static_graph=true", "broadcast_buffers=false")
    wrap = torch.nn.parallel.DistributedDataParallel
    with applying(wrappers.DdpSettingsApplier, *stated, "find_unused_parameters=false") as outcomes:
        model = wrap(torch.nn.Linear(3, 2), find_unused_parameters=True)
    assert (model.gradient_as_bucket_view, model.static_graph, model.broadcast_buffers) == (True, True, False)
    assert model.find_unused_parameters is False and model.bucket_bytes_cap == 12.5 * 2**20
    assert [row["applied"] for row in outcomes.recorded()] == [True] * 5
    assert ("find_unused_parameters", True, True, "") in told(outcomes)
    model(torch.ones(1, 3)).sum().backward()
    default = torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
    with applying(wrappers.DdpSettingsApplier, "first_bucket_mb=0.25", "static_graph=true") as outcomes:
        model, stated = wrap(torch.nn.Linear(3, 2)), wrap(torch.nn.Linear(3, 2), bucket_cap_mb=7)
    assert model._bucket_config.first_bucket_bytes_cap == 1 << 18 and model.static_graph
    assert default == torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
    assert ("first_bucket_mb", True, 1.0, "") in told(outcomes) and stated.bucket_bytes_cap == 7 << 20
    assert "for the first bucket too" in next(why for name, done, _, why in told(outcomes) if not done)


def test_a_constructor_that_raises_or_lacks_a_setting_is_told(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Refusing:
        def __init__(self, module: Any) -> None:
            seen.append(torch.distributed._DEFAULT_FIRST_BUCKET_BYTES)
            if len(seen) == 1:
                raise ValueError("no")

    monkeypatch.setattr(torch.nn.parallel, "DistributedDataParallel", Refusing)
    with applying(wrappers.DdpSettingsApplier, "first_bucket_mb=2") as outcomes:
        Refusing(None)
    assert seen == [2 << 20, 1 << 20] and "ValueError: no; made as the script has it" in told(outcomes)[0][3]

    class Old:
        def __init__(self, module: Any, bucket_cap_mb: int = 25) -> None:
            self.bucket_cap_mb = bucket_cap_mb

    monkeypatch.setattr(torch.nn.parallel, "DistributedDataParallel", Old)
    with applying(wrappers.DdpSettingsApplier, "static_graph=true", "bucket_cap_mb=50") as outcomes:
        assert Old(torch.nn.Linear(3, 2)).bucket_cap_mb == 50
    why = "this version or class has no such argument"
    assert told(outcomes) == [("static_graph", False, None, why), ("bucket_cap_mb", True, 25, "")]


Strategy = Enum("Strategy", "FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD _HYBRID_SHARD_ZERO2")
Prefetch = Enum("Prefetch", "BACKWARD_PRE BACKWARD_POST")


class _Sharded:
    def __init__(self, module: Any, sharding_strategy: Any = None, backward_prefetch: Any = None) -> None:
        self.strategy, self.prefetch = sharding_strategy, backward_prefetch


@pytest.mark.parametrize(
    ("stated", "given", "strategy", "applied"),
    [
        ("reshard_after_forward=false", None, "SHARD_GRAD_OP", True),
        ("reshard_after_forward=false", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", True),
        ("reshard_after_forward=true", "SHARD_GRAD_OP", "FULL_SHARD", True),
        ("reshard_after_forward=false", "NO_SHARD", "NO_SHARD", False),
    ],
)
def test_fsdp1_names_resharding_by_its_strategies(stated: str, given: str | None, strategy: str, applied: bool) -> None:
    source = SimpleNamespace(ShardingStrategy=Strategy, BackwardPrefetch=Prefetch, FullyShardedDataParallel=_Sharded)
    with applying(wrappers.Fsdp1SettingsApplier, stated, "backward_prefetch=post", module=source) as outcomes:
        model = _Sharded(None, Strategy[given] if given else None)
    assert model.strategy.name == strategy and model.prefetch is Prefetch.BACKWARD_POST
    assert told(outcomes)[-1][1] is True and told(outcomes)[0][1] is applied


def test_deepspeed_reads_a_changed_copy_of_the_scripts_configuration(tmp_path: Path) -> None:
    class DeepSpeedConfig:
        def __init__(self, config: Any, mpu: Any = None) -> None:
            self.read = config if isinstance(config, dict) else json.loads(Path(config).read_text())

    source = ModuleType("source")
    source.DeepSpeedConfig = DeepSpeedConfig  # type: ignore[attr-defined]
    given = {"zero_optimization": {"stage": 2, "overlap_comm": False}, "steps": 1}
    (tmp_path / "ds.json").write_text(json.dumps(given))
    for config in (given, str(tmp_path / "ds.json")):
        stated = ("overlap_comm=true", "reduce_bucket_size=5000")
        with applying(wrappers.DeepSpeedSettingsApplier, *stated, module=source) as found:
            read = DeepSpeedConfig(config).read
        assert read["zero_optimization"] == {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 5000}
        assert told(found) == [("overlap_comm", True, False, ""), ("reduce_bucket_size", True, None, "")]
    assert given["zero_optimization"] == {"stage": 2, "overlap_comm": False}
    for other in ({"zero_optimization": {"stage": 0}}, {}):
        with applying(wrappers.DeepSpeedSettingsApplier, "overlap_comm=true", module=source) as found:
            assert DeepSpeedConfig(other).read is other
        assert told(found)[0][3] == "ZeRO is off in the configuration"


def test_a_function_that_two_modules_have_is_changed_once() -> None:
    calls: list[bool] = []

    def fully_shard(module: Any, *, reshard_after_forward: bool = True) -> None:
        calls.append(reshard_after_forward)

    outcomes = Outcomes([parse_set("reshard_after_forward=false")])
    source, again = ModuleType("source"), ModuleType("again")
    source.fully_shard = fully_shard  # type: ignore[attr-defined]
    make: Any = wrappers.Fsdp2SettingsApplier
    first, second = (make(None, outcomes, name) for name in ("source", "again"))
    first.install(source)
    again.fully_shard = source.fully_shard  # type: ignore[attr-defined]
    second.install(again)
    again.fully_shard(None)
    first.uninstall()
    source.fully_shard(None)
    assert calls == [False, True] and told(outcomes) == [("reshard_after_forward", True, True, "")]
    assert outcomes.recorded()[0]["objects"] == 1
