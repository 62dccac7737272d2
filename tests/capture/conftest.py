"""Real captured runs shared by the tests of this folder."""

import importlib.util
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `runs` is a helper of this folder, not a package

from runs import Captured, ddprof_run, script

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as `nohup make test &` leaves it, for the jobs of the tests too
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start torch processes need torch."""
    if importlib.util.find_spec("torch") is None:
        for item in items:
            if item.get_closest_marker("torch"):
                item.add_marker(pytest.mark.skip(reason="torch is not installed"))


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of this process only."""
    torch = pytest.importorskip("torch")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="session", params=["1", pytest.param("0", marks=pytest.mark.slow)], ids=["in C", "in Python"])
def healthy(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Captured:
    """Fourteen steps of the small DDP loop on two ranks, with the phase timers of both kinds. Its losses lie beside."""
    out = tmp_path_factory.mktemp("healthy")
    return ddprof_run(out, script("loop.py", "--losses", str(out / "losses")), DDPROF_NATIVE=request.param)
