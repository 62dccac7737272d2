"""A rank's environment, model and loader, and what NCCL's own log says."""

import cProfile
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hubs import on_another_thread

from ddprof.capture.describe import loader, nccl_log
from ddprof.capture.describe.environment import communication_environment, watchers
from ddprof.capture.describe.model import _as_given_mib


def test_settings_and_debugging_aids_are_kept_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"NCCL_DEBUG": "INFO", "CUDA_LAUNCH_BLOCKING": "1", "AMD_SERIALIZE_KERNEL": "3", "HIP_LAUNCH_BLOCKING": "1"}
    kept["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    others = {"NCCL_TOKEN": "x", "CUDA_VISIBLE_DEVICES": "0", "MY_KEY": "y"}
    for name, value in {**kept, **others}.items():
        monkeypatch.setenv(name, value)
    known = communication_environment()
    assert kept.items() <= known.items() and not others.keys() & known.keys()


def spy(frame: object, event: str, argument: object) -> None:
    """A trace function as debuggers set it."""


def test_what_watches_the_python_of_a_thread_is_named() -> None:
    seen: list[list[str]] = []

    def watched() -> None:
        seen.append(watchers())
        sys.settrace(spy)
        profile = cProfile.Profile()
        profile.enable()
        seen.append(watchers())
        profile.disable()

    on_another_thread(watched)
    before, after = seen
    added = [name for name in after if name not in before]
    assert f"sys.settrace: {__name__}.spy" in added and any("cProfile" in name for name in added)


@pytest.mark.parametrize("cap_mb", [25, 0.001, 0.02, 12.5, 1 / 3, 1e6])
def test_a_bucket_size_is_told_as_the_script_wrote_it(cap_mb: float) -> None:
    told = _as_given_mib(int(cap_mb * 2**20))
    assert int(told * 2**20) == int(cap_mb * 2**20) and len(f"{told:.17g}") <= max(4, len(f"{cap_mb:.17g}"))
    assert _as_given_mib(2**53 + 1) == pytest.approx(2**33)  # which no float holds


# As NCCL 2.19 to 2.28 write it (channel lines of several versions).
LOG = """\
node-a:11:11 [0] NCCL INFO Bootstrap : Using ens7:10.128.0.32<0>
node-a:11:11 [0] NCCL INFO NCCL version 2.27.3+cuda12.9
node-a:11:99 [0] NCCL INFO Using network IB
node-a:11:99 [0] NCCL INFO comm 0x55f0 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 30 commId 0x43 - Init START
node-a:11:99 [0] NCCL INFO Channel 00/32 :    0   1   2   3
node-a:11:99 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
node-a:11:99 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node-a:11:99 [0] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/IB/3/GDRDMA
node-a:11:99 [0] NCCL INFO Channel 02/0 : 0[0] -> 8[0] [send] via NET/IB/0(1)/GDRDMA/Shared
node-a:11:99 [0] NCCL INFO Channel 03 : 0[31000] -> 8[31000] [send] via NET/Socket/0
node-a:11:99 [0] NCCL INFO Channel 04 : 0[31000] -> 3[e3000] via SHM/direct/direct comm 0x55f0 nRanks 16
node-a:11:99 [0] NCCL INFO Channel 05/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA
"""


def test_what_it_chose_and_a_log_that_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    assert nccl_log.read(None) is None and nccl_log.read(path) is None
    path.write_bytes(b"\xff\0 NCCL INFO Channel 00/0 : via")
    assert nccl_log.read(path) == {"version": None, "network": None, "transports": {}}
    path.write_text(LOG)
    assert nccl_log.read(path) == {
        "version": "2.27.3+cuda12.9",
        "network": "IB",
        "transports": {"P2P/CUMEM": 2, "NET/IB/GDRDMA": 2, "NET/Socket": 1, "SHM": 1, "NET/AWS Libfabric/GDRDMA": 1},
    }


OTHERS = {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/dev/null", "NCCL_DEBUG_SUBSYS": "COLL", "WORLD_SIZE": "4096"}


def test_a_file_is_asked_for_where_it_can_be_written_and_nobody_else_has_a_say(tmp_path: Path) -> None:
    environment: dict[str, str] = {"HOME": str(tmp_path)}
    path = nccl_log.ask(tmp_path, environment)
    assert path is not None and path.is_file()
    assert environment["NCCL_DEBUG_FILE"].replace("%p", str(os.getpid())) == str(path)
    assert (environment["NCCL_DEBUG"], environment["NCCL_DEBUG_SUBSYS"]) == ("INFO", "INIT")
    nccl_log.clear(path)
    for other in OTHERS.items():
        environment = dict([other])
        assert nccl_log.ask(tmp_path, environment) is None and environment == dict([other])
    assert not list(tmp_path.iterdir())
    settings = tmp_path / "nccl.conf"
    settings.write_text("NCCL_DEBUG=WARN\n")
    assert nccl_log.ask(tmp_path, {"NCCL_CONF_FILE": str(settings)}) is None
    environment: dict[str, str] = {}
    with pytest.raises(OSError, match="gone"):
        nccl_log.ask(tmp_path / "gone", environment)
    assert environment == {}


EIGHT = {"__iter__": lambda self: iter(range(8))}


@pytest.mark.torch
@pytest.mark.parametrize("batch_size", [4, None])
def test_an_iterable_data_set_has_settings_and_no_sampler(batch_size: int | None) -> None:
    data = pytest.importorskip("torch.utils.data")
    stream = type("Stream", (data.IterableDataset,), EIGHT)()  # has no length, and draws its samples itself
    described = loader.describe(data.DataLoader(stream, batch_size=batch_size, pin_memory=False))
    assert described["dataset"] == "Stream" and described["num_workers"] == 0
    assert described["batch_size"] == batch_size
    assert (described["sampler"], described["dataset_length"], described["batches_per_epoch"]) == (None, None, None)


@pytest.mark.torch
def test_a_sampler_without_a_length_is_described() -> None:
    data = pytest.importorskip("torch.utils.data")
    described: Any = loader.describe(data.DataLoader(range(8), sampler=type("Endless", (data.Sampler,), EIGHT)()))
    assert described["sampler"]["class"] == "Endless" and described["batches_per_epoch"] is None
