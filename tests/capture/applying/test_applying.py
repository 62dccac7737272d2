"""Wrapped models made with other settings, called under autocast, compiled, prefetching, their gradients cast."""

import copy
import json
import pickle
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest
from hubs import applying, told

from ddprof.capture.applying import finished, wrappers
from ddprof.capture.applying.model_calls import AutocastApplier, CompileApplier
from ddprof.capture.applying.outcomes import Outcomes
from ddprof.settings.wanted import parse_set

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
DDP = ("torch.nn.parallel.distributed", "DistributedDataParallel", "__init__")
STATED = "compile=true"
default_hooks: Any = pytest.importorskip("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")


@pytest.fixture
def source() -> Any:
    """Home of `fully_shard`, if torch has it."""
    return pytest.importorskip("torch.distributed.fsdp._fully_shard._fully_shard")


class Seeing(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Keeps the type that its product has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.seen: list[Any] = []

    def forward(self, x: Any) -> Any:
        y = self.layer(x)
        self.seen.append(y.dtype)
        return {"y": y, "count": 1}  # beside something that is no tensor


def wrapped(network: Any, cls: Any = AutocastApplier, stated: str = "autocast=bf16") -> tuple[Any, Any]:
    """The network in DDP under the setting, and what came of it."""
    with applying(cls, stated, of=DDP) as outcomes:
        return torch.nn.parallel.DistributedDataParallel(network), outcomes


def test_a_forward_pass_is_made_in_bfloat16_and_gives_float32(alone: None) -> None:
    network = Seeing()
    model, outcomes = wrapped(network)
    assert told(outcomes) == [("autocast", False, None, "no call of the model was seen")]
    result = model(torch.ones(1, 3))
    assert network.seen == [torch.bfloat16] and result["y"].dtype == torch.float32 and result["count"] == 1
    result["y"].sum().backward()
    assert network.layer.weight.grad.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    assert told(outcomes) == [("autocast", True, None, "")]
    assert pickle.loads(pickle.dumps(vars(model)["_compiled_call_impl"])) is None
    assert vars(copy.deepcopy(network)).get("_compiled_call_impl") is None


def test_autocast_of_the_script_and_other_precisions_also_of_fsdp_are_let_be(alone: None) -> None:
    model, outcomes = wrapped(Seeing())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(torch.ones(1, 3))["y"].dtype == torch.bfloat16
    assert told(outcomes) == [("autocast", False, None, "the script calls the model under autocast itself")]
    model, outcomes = wrapped(torch.nn.Linear(3, 2, dtype=torch.bfloat16))
    assert "another precision" in told(outcomes)[0][3] and vars(model).get("_compiled_call_impl") is None
    source: Any = pytest.importorskip("torch.distributed.fsdp.fully_sharded_data_parallel")
    of = (source.__name__, "FullyShardedDataParallel", "__init__")
    precision, device = source.MixedPrecision(param_dtype=torch.bfloat16), torch.device("cpu")
    with applying(AutocastApplier, "autocast=bf16", of=of) as outcomes:
        plain = source.FullyShardedDataParallel(Seeing(), device_id=device)
        mixed = source.FullyShardedDataParallel(Seeing(), device_id=device, mixed_precision=precision)
    assert "another precision" in told(outcomes)[0][3] and vars(mixed).get("_compiled_call_impl") is None
    plain(torch.ones(1, 3))
    assert ("autocast", True, None, "") in told(outcomes)


def test_of_units_inside_units_the_outermost_enters_it(alone: None, source: Any) -> None:
    network = torch.nn.Sequential(Seeing())
    with applying(AutocastApplier, "autocast=bf16", of=(source.__name__, "", "fully_shard"), module=source) as outcomes:
        source.fully_shard(network[0])
        source.fully_shard(network)
    assert network(torch.ones(1, 3))["y"].dtype == torch.float32
    assert network[0].seen == [torch.bfloat16] and vars(network[0]).get("_compiled_call_impl") is None
    assert [row["objects"] for row in outcomes.recorded()] == [1]


class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A class of the script's own, as dynamo leaves torch's frames alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        return self.layer(x) + 1


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """In place of inductor: runs graphs as they are; raises what it is told to."""
    import torch._dynamo

    made = create_autospec(lambda graph, inputs: None, side_effect=lambda graph, inputs: graph.forward)
    torch._dynamo.reset()
    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: made)
    yield made
    torch._dynamo.reset()


def test_a_model_is_compiled_as_it_is_called(alone: None, compiler: Any) -> None:
    model, outcomes = wrapped(Network(), CompileApplier, STATED)
    assert "no graph of the model reached the compiler" in told(outcomes)[0][3]
    model(torch.ones(1, 3)).sum().backward()
    assert compiler.call_count == 1 and told(outcomes) == [("compile", True, None, "")]
    assert list(model.state_dict()) == ["module.layer.weight", "module.layer.bias"]


def test_what_the_script_compiles_is_let_be_and_a_compiler_may_fail(alone: None, compiler: Any) -> None:
    network = Network()
    network.compile(backend=compiler)
    model, outcomes = wrapped(network, CompileApplier, STATED)
    assert "the script compiles it" in told(outcomes)[0][3] and vars(model).get("_compiled_call_impl") is None
    compiler.side_effect = RuntimeError("no C++ compiler\nmore")
    model, outcomes = wrapped(Network(), CompileApplier, STATED)
    assert model(torch.ones(1, 3)).shape == (1, 2)
    why = "a graph of the model runs as it is: RuntimeError: no C++ compiler"
    assert told(outcomes) == [("compile", False, None, why)]


def test_of_units_inside_units_the_innermost_are_compiled(alone: None, source: Any, compiler: Any) -> None:
    network = torch.nn.Sequential(Network())
    with applying(CompileApplier, STATED, of=(source.__name__, "", "fully_shard"), module=source) as outcomes:
        source.fully_shard(network[0])
        source.fully_shard(network)
    network(torch.ones(1, 3)).sum().backward()
    assert compiler.called and vars(network).get("_compiled_call_impl") is None
    assert ("compile", True, None, "") in told(outcomes)


COMPRESSED = "gradient_compression=bf16"
BOTH = ("forward_prefetch_units=2", "backward_prefetch_units=1")
KEPT = ("_states_to_forward_prefetch", "_states_to_backward_prefetch")


def _trained(model: Any) -> None:
    model(torch.ones(1, 3)).sum().backward()


def test_the_hook_is_registered_as_the_first_backward_pass_begins(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Any] = []
    wrap = torch.nn.parallel.DistributedDataParallel
    monkeypatch.setattr(wrap, "register_comm_hook", lambda model, state, hook: registered.append((model, hook)))
    monkeypatch.setattr(finished, "exchanged_on_cpu", lambda model: False)
    with applying(finished.GradientCompressionApplier, COMPRESSED) as outcomes:
        model = wrap(torch.nn.Linear(3, 2))
        assert told(outcomes) == [("gradient_compression", False, None, "no backward pass has begun")]
        for _ in range(2):
            _trained(model)
    assert registered == [(model, default_hooks.bf16_compress_hook)]
    assert told(outcomes) == [("gradient_compression", True, None, "")]


def test_the_scripts_hook_stays_and_what_ddp_refuses_is_told(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with applying(finished.GradientCompressionApplier, COMPRESSED) as outcomes:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        _trained(model)
    assert told(outcomes)[0][3] == "the script registers a communication hook of its own"
    with applying(finished.GradientCompressionApplier, COMPRESSED) as outcomes:
        _trained(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2)))
    assert "exchanged by gloo" in told(outcomes)[0][3]
    monkeypatch.setattr(finished, "exchanged_on_cpu", lambda model: False)
    with applying(finished.GradientCompressionApplier, COMPRESSED) as outcomes:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
        model._register_builtin_comm_hook(torch.distributed.BuiltinCommHookType.ALLREDUCE)
        _trained(model)
    assert not told(outcomes)[0][1] and told(outcomes)[0][3]


def _model(source: Any, layers: int) -> Any:
    model = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(layers)])
    for layer in model:
        source.fully_shard(layer)
    return source.fully_shard(model)


def _lists(model: Any, kept: str) -> list[list[int]]:
    layers = [layer._get_fsdp_state() for layer in model]
    return [[layers.index(state) for state in getattr(unit, kept)] for unit in layers]


def test_units_prefetch_those_that_come_next_and_lists_of_the_scripts_stay(alone: None, source: Any) -> None:
    with applying(finished.PrefetchApplier, *BOTH, of=(source.__name__,), module=source) as outcomes:
        model = _model(source, 4)
        for _ in range(2):
            _trained(model)
    assert _lists(model, KEPT[0]) == [[1, 2], [2, 3], [3], []] and _lists(model, KEPT[1]) == [[], [0], [1], [2]]
    assert [(name, done) for name, done, _, _ in told(outcomes)] == [(text.partition("=")[0], True) for text in BOTH]
    with applying(finished.PrefetchApplier, *BOTH, of=(source.__name__,), module=source) as outcomes:
        model = _model(source, 3)
        model[0].set_modules_to_forward_prefetch([model[2]])
        model(torch.ones(1, 3)).sum().backward()
    assert _lists(model, KEPT[0]) == [[2], [], []] and _lists(model, KEPT[1]) == [[], [0], [1]]
    assert [row[:2] for row in told(outcomes)] == [("forward_prefetch_units", False), ("backward_prefetch_units", True)]


@pytest.mark.parametrize("layers", [0, 1])
def test_a_model_without_a_next_unit(alone: None, source: Any, layers: int) -> None:
    with applying(finished.PrefetchApplier, BOTH[0], of=(source.__name__,), module=source) as outcomes:
        model = _model(source, 1) if layers else source.fully_shard(torch.nn.Linear(3, 3))
        model(torch.ones(1, 3)).sum().backward()
    why = "it is the only unit: none comes before or after it"
    assert told(outcomes) == [("forward_prefetch_units", False, None, why)]


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
