"""Wrapped models compiled in place."""

from __future__ import annotations

from typing import Any

import pytest
from appliers import applying, told

from ddprof.capture.applying.wrapped.compiling import CompileApplier

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
DDP = ("torch.nn.parallel.distributed", "DistributedDataParallel", "__init__")
STATED = "compile=true"


class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Of a class of the script's: dynamo leaves torch's own frames alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        """One product."""
        return self.layer(x) + 1


def wrapped(network: Any) -> tuple[Any, Any]:
    """The network in DDP under the setting, and what came of it."""
    with applying(CompileApplier, STATED, of=DDP) as outcomes:
        return torch.nn.parallel.DistributedDataParallel(network), outcomes


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """In place of inductor: keeps the graphs and runs them as they are; raises what it is told to."""
    import torch._dynamo

    class Compiler:
        def __init__(self) -> None:
            self.graphs: list[Any] = []
            self.error: Exception | None = None

        def __call__(self, graph: Any, inputs: Any) -> Any:
            if self.error is not None:
                raise self.error
            self.graphs.append(graph)
            return graph.forward

    made = Compiler()
    torch._dynamo.reset()
    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: made)
    yield made
    torch._dynamo.reset()


def test_a_model_is_compiled_as_it_is_called(alone: None, compiler: Any) -> None:
    network = Network()
    model, outcomes = wrapped(network)
    assert "no graph of the model reached the compiler" in told(outcomes)[0][3]
    model(torch.ones(1, 3)).sum().backward()
    assert len(compiler.graphs) == 1 and told(outcomes) == [("compile", True, None, "")]
    assert list(model.state_dict()) == ["module.layer.weight", "module.layer.bias"]


def test_a_compiler_that_fails_leaves_the_job_running(alone: None, compiler: Any) -> None:
    compiler.error = RuntimeError("no C++ compiler\nmore")
    model, outcomes = wrapped(Network())
    assert model(torch.ones(1, 3)).shape == (1, 2)
    why = "a graph of the model runs as it is: RuntimeError: no C++ compiler"
    assert told(outcomes) == [("compile", False, None, why)]


def test_what_the_script_compiles_is_let_be(alone: None, compiler: Any) -> None:
    network = Network()
    network.compile(backend=compiler)
    model, outcomes = wrapped(network)
    assert "the script compiles it" in told(outcomes)[0][3] and vars(model).get("_compiled_call_impl") is None


def test_of_units_inside_units_the_innermost_are_compiled(alone: None, compiler: Any) -> None:
    source: Any = pytest.importorskip("torch.distributed.fsdp._fully_shard._fully_shard")
    network = torch.nn.Sequential(Network())
    with applying(CompileApplier, STATED, of=(source.__name__, "", "fully_shard"), module=source) as outcomes:
        source.fully_shard(network[0])
        source.fully_shard(network)
    network(torch.ones(1, 3)).sum().backward()
    assert compiler.graphs and vars(network).get("_compiled_call_impl") is None
    assert ("compile", True, None, "") in told(outcomes)
