"""What instrumentors are told of: only what they override."""

from types import ModuleType, SimpleNamespace
from typing import Any

from ddprof.capture.bootstrap import instrumentors
from ddprof.capture.guard import Guard
from ddprof.capture.instruments.base import Instrumentor, Listeners


class Silent(Instrumentor):
    """Is told of nothing."""

    def _install(self, module: ModuleType) -> None:
        return None


class Watching(Silent):
    """Is told of the end of windows."""

    def window_closed(self) -> None:
        """Overridden."""


def test_only_hooks_that_are_overridden_are_kept_and_few_stand_on_the_step_path() -> None:
    hub: Any = SimpleNamespace()
    watching = Watching(hub)
    listeners = Listeners([Silent(hub), watching, Silent(hub)])
    assert listeners.window_closed == [watching.window_closed]
    assert listeners.window_opened == listeners.step_ended == listeners.optimizer_stepped == []
    hub: Any = SimpleNamespace(guard=Guard())
    listeners = Listeners(instrumentors(hub))
    assert [type(hook.__self__).__name__ for hook in listeners.step_ended] == ["ForwardPasses", "GradientTimes"]
    assert [type(hook.__self__).__name__ for hook in listeners.optimizer_stepped] == ["DataLoading"]
