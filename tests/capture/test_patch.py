"""Patches leave what they found, and what others patched later."""

from types import SimpleNamespace

from ddprof.capture.patch import Patch


def test_patch_restores_inherited_and_own_attributes() -> None:
    class Base:
        def f(self) -> int:
            return 1

    class Child(Base):
        pass

    own = vars(Base)["f"]
    for owner in (Child, Base):
        patch = Patch(owner, "f", lambda self: 2)
        patch.install()
        patch.install()
        assert Child().f() == 2
        patch.uninstall()
        patch.uninstall()
        assert Child().f() == 1
    assert "f" not in vars(Child)
    assert vars(Base)["f"] is own


def test_patch_leaves_a_later_patch_alone() -> None:
    owner = SimpleNamespace(f=1)
    patch = Patch(owner, "f", 2)
    patch.install()
    owner.f = 3
    patch.uninstall()
    assert owner.f == 3
