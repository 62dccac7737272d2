"""Notifications of instrumentors: only those that they override."""

from types import SimpleNamespace
from typing import Any

from ddprof.capture.bootstrap import instrumentors
from ddprof.capture.guard import Guard
from ddprof.capture.instruments.base import Instrumentor, Listeners, PatchSet

# Is told of nothing; is told of the end of windows.
Silent: Any = type("Silent", (Instrumentor,), {"_install": lambda self, module: None})
Watching: Any = type("Watching", (Silent,), {"window_closed": lambda self: None})


def test_only_hooks_that_are_overridden_are_kept_and_few_stand_on_the_step_path() -> None:
    hub: Any = SimpleNamespace()
    watching = Watching(hub)
    listeners = Listeners([Silent(hub), watching, Silent(hub)])
    assert listeners.window_closed == [watching.window_closed]
    assert listeners.window_opened == listeners.step_ended == listeners.optimizer_stepped == []
    hub: Any = SimpleNamespace(guard=Guard())
    listeners = Listeners(instrumentors(hub))
    assert [type(hook.__self__).__name__ for hook in listeners.step_ended] == ["ForwardPasses", "GradientTimes"]
    assert [type(hook.__self__).__name__ for hook in listeners.optimizer_stepped] == ["DataLoading", "ForwardPasses"]


def test_patch_restores_inherited_and_own_attributes_and_leaves_a_later_patch_alone() -> None:
    class Base:
        def f(self) -> int:
            return 1

    class Child(Base):
        pass

    own = vars(Base)["f"]
    for owner in (Child, Base):
        patches = PatchSet()
        patches.add(owner, "f", lambda self: 2)
        assert Child().f() == 2 and patches
        patches.clear()
        patches.clear()
        assert Child().f() == 1
    assert "f" not in vars(Child) and vars(Base)["f"] is own
    owner = SimpleNamespace(f=1)
    patches.add(owner, "f", 2)
    owner.f = 3
    patches.clear()
    assert owner.f == 3
