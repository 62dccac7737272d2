"""Wrapped models called under autocast, and compiled in place."""

import copy
import pickle
from typing import Any
from unittest.mock import create_autospec

import pytest
from hubs import applying, told

from ddprof.capture.applying.model_calls import AutocastApplier, CompileApplier

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
DDP = ("torch.nn.parallel.distributed", "DistributedDataParallel", "__init__")
STATED = "compile=true"


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


def test_of_units_inside_units_the_outermost_enters_it(alone: None) -> None:
    source: Any = pytest.importorskip("torch.distributed.fsdp._fully_shard._fully_shard")
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


def test_of_units_inside_units_the_innermost_are_compiled(alone: None, compiler: Any) -> None:
    source: Any = pytest.importorskip("torch.distributed.fsdp._fully_shard._fully_shard")
    network = torch.nn.Sequential(Network())
    with applying(CompileApplier, STATED, of=(source.__name__, "", "fully_shard"), module=source) as outcomes:
        source.fully_shard(network[0])
        source.fully_shard(network)
    network(torch.ones(1, 3)).sum().backward()
    assert compiler.called and vars(network).get("_compiled_call_impl") is None
    assert ("compile", True, None, "") in told(outcomes)
