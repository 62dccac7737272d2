"""A host: its counters and its GPUs', files of them that stop growing, and its connections, from tools and kernel."""

import ctypes
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddprof.capture.launcher.host import counters
from ddprof.capture.launcher.host.counters import CounterLog, HostCounters, summed_up
from ddprof.capture.launcher.host.gpus import GpuWatch, Nvml
from ddprof.capture.launcher.host.topology import parse_matrix, read_topology


def test_counters_only_grow() -> None:
    counters = HostCounters(GpuWatch(None))
    first, second = counters.sample(), counters.sample()
    assert second["at_ns"] > first["at_ns"]
    before, after = first["cpu"]["jiffies"], second["cpu"]["jiffies"]
    assert all(after[name] >= value for name, value in before.items() if name != "iowait")


SW_POWER_CAP, GPU_IDLE, HW_THERMAL = 0x4, 0x1, 0x40


def library(samples: list[tuple[int, int, int]], busy_percent: int = 90) -> Any:
    """Two GPUs. The second one's throttle reasons, busy percentage and clock are given sample by sample."""
    given, now = iter(samples), [(0, 0, 0)]

    def number(value: Callable[[int], int], field: str = "value") -> Callable[..., Any]:
        return lambda handle, *arguments: setattr(arguments[-1]._obj, field, value(handle)) or 0

    def power(handle: int) -> int:
        """The first query of a sample."""
        now[0] = next(given) if handle == 1 else now[0]
        return 300_000

    def uuid(handle: int, text: Any, size: int) -> int:
        text.value = f"GPU-{handle}".encode()
        return 0

    return SimpleNamespace(
        nvmlDeviceGetPowerUsage=number(power),
        nvmlDeviceGetClockInfo=number(lambda handle: now[0][2] if handle else 1900),
        nvmlDeviceGetCurrentClocksThrottleReasons=number(lambda handle: now[0][0] if handle else 0),
        nvmlDeviceGetEnforcedPowerLimit=number(lambda handle: 310_000 if handle else 700_000),
        nvmlDeviceGetUtilizationRates=number(lambda handle: busy_percent, "gpu"),
        nvmlDeviceGetTemperature=lambda *_: 3,  # NVML_ERROR_NOT_SUPPORTED
        nvmlDeviceGetUUID=uuid,
    )


def watch(samples: list[tuple[int, int, int]], busy_percent: int = 90) -> GpuWatch:
    gpus = GpuWatch(Nvml(library(samples, busy_percent), {0: 0, 1: 1}))
    for _ in samples:
        gpus.sample()
    return gpus


def test_busy_samples_are_counted_by_reason_and_an_idle_gpu_or_no_driver_says_nothing() -> None:
    first, second = watch([(SW_POWER_CAP, 90, 1200), (SW_POWER_CAP | HW_THERMAL, 90, 1300), (0, 90, 1400)]).summary()
    assert (first["uuid"], first["power_limit_mw"], first["throttled"]) == ("GPU-0", 700_000, {})
    assert (second["samples"], second["busy_samples"]) == (3, 3)
    assert second["throttled"] == {"sw_power_cap": 2, "hw_thermal": 1}
    assert (second["sm_clock_mhz"], second["power_mw"], second["power_limit_mw"]) == (1300, 300_000, 310_000)
    assert second["temperature_max_c"] is None  # the driver does not say
    assert "max_sm_clock_mhz" not in second  # a library that does not know the query
    _, second = watch([(SW_POWER_CAP | GPU_IDLE, 0, 300)], busy_percent=0).summary()
    assert (second["samples"], second["busy_samples"], second["throttled"]) == (1, 0, {})
    assert "sm_clock_mhz" not in second
    gpus = GpuWatch(None)
    gpus.tick()
    assert not gpus.exists and gpus.summary() == []


def test_ticks_are_a_second_apart_and_monitor_mode_books_its_own_samples() -> None:
    gpus = GpuWatch(Nvml(library([(0, 90, 1000)] * 3), {0: 0, 1: 1}))
    gpus.tick()
    gpus.tick()
    assert gpus.summary()[0]["samples"] == 1
    assert [gpu["index"] for gpu in HostCounters(gpus).sample()["gpus"]] == [0, 1]
    assert gpus.summary()[0]["samples"] == 2


def test_a_gpu_that_fell_off_its_bus_leaves_the_others_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle_of(index: int, handle: Any) -> int:
        handle._obj.value = index
        return 15 if index == 1 else 0  # NVML_ERROR_GPU_IS_LOST

    answers = SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlDeviceGetCount_v2=lambda count: setattr(count._obj, "value", 3) or 0,
        nvmlDeviceGetHandleByIndex_v2=handle_of,
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda name: answers)
    gpus = Nvml.open()
    assert gpus is not None and [gpu["index"] for gpu in gpus.sample()] == [0, 2]
    assert [gpu["index"] for gpu in gpus.devices()] == [0, 2]


SECOND_NS = 1_000_000_000
BEGIN_NS = 1_700_000_040 * SECOND_NS  # a whole minute


def sample(second: int) -> dict[str, Any]:
    """Counters of a host with 8 GPUs."""
    reasons = ["power cap"] if second % 2 else []
    gpu = {"power_mw": 300_000 + second, "sm_clock_mhz": 1980, "busy_percent": 97, "used_bytes": 60_123_456_789}
    return {
        "at_ns": BEGIN_NS + second * SECOND_NS,
        "cpu": {"jiffies": {"user": 100 * second, "idle": 900 * second}, "load_1m": 2.0 + second},
        "memory": {"total_bytes": 10, "available_bytes": 9 - second % 3},
        "network": {"eth0": {"received_bytes": 5 * second, "sent_bytes": 1, "drops": 0}},
        "gpus": [{"index": index, **gpu, "throttled_by": reasons} for index in range(8)],
    }


def keep(monkeypatch: pytest.MonkeyPatch, seconds: int, minutes: int, slack: int) -> None:
    for name, value in {"KEPT_SECONDS": seconds, "KEPT_MINUTES": minutes, "_MINUTES_SLACK": slack}.items():
        monkeypatch.setattr(counters, name, value)


def lines(folder: Path, suffix: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"host.h.1{suffix}").read_text().splitlines()]


def test_a_minute_keeps_extremes_means_last_counts_and_reasons_of_what_samples_have() -> None:
    minute = summed_up([sample(second) for second in range(60)])
    assert (minute["from_ns"], minute["to_ns"], minute["samples"]) == (BEGIN_NS, BEGIN_NS + 59 * SECOND_NS, 60)
    assert minute["cpu"] == {"jiffies": {"user": 5900, "idle": 53100}, "load_1m": [2.0, 31.5, 61.0]}
    assert minute["memory"]["available_bytes"] == [7, 8.0, 9]
    assert minute["network"]["eth0"]["received_bytes"] == 295
    assert [gpu["index"] for gpu in minute["gpus"]] == list(range(8))
    assert minute["gpus"][3]["power_mw"] == [300_000, 300_029.5, 300_059]
    assert minute["gpus"][3]["throttled_by"] == {"power cap": 30}
    first, second = sample(0), sample(1)
    del first["gpus"]
    second["cpu"]["load_1m"] = None
    minute = summed_up([first, second])
    assert minute["gpus"][0]["power_mw"] == [300_001, 300_001.0, 300_001]
    assert minute["cpu"]["load_1m"] == [2.0, 2.0, 2.0]


def test_both_files_stop_growing_and_keep_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(monkeypatch, seconds=100, minutes=10, slack=5)
    log, longest = CounterLog(tmp_path / "host.h.1"), 0
    for second in range(1500):
        log.add(sample(second))
        longest = max(longest, (tmp_path / "host.h.1.counters.jsonl").stat().st_size)
    kept = lines(tmp_path, ".counters.jsonl")
    assert [line["at_ns"] for line in kept] == [BEGIN_NS + s * SECOND_NS for s in range(1500 - len(kept), 1500)]
    assert 100 <= len(kept) < 200 and longest < 200 * 1.1 * len(json.dumps(sample(1499)))
    minutes = lines(tmp_path, ".counters-by-minute.jsonl")
    assert 10 <= len(minutes) < 15 and [line["samples"] for line in minutes] == [60] * len(minutes)
    assert minutes[-1]["to_ns"] == BEGIN_NS + 1439 * SECOND_NS
    names = {"host.h.1.counters-by-minute.jsonl", "host.h.1.counters.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} == names


NO_PROCESS = 2**22 + 7  # above what Linux gives


def started_again(folder: Path, pid: int, seconds: range) -> None:
    """One start of the job: a launcher with `pid` that logs for some seconds."""
    log = CounterLog(folder / f"host.h.{pid}")
    for second in seconds:
        log.add(sample(second))


@pytest.mark.parametrize("pids", [[1] * 12, range(NO_PROCESS, NO_PROCESS + 12)], ids=["same pid", "other pids"])
def test_the_bound_holds_over_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pids: Sequence[int]) -> None:
    keep(monkeypatch, seconds=200, minutes=4, slack=2)
    for start, pid in enumerate(pids):
        started_again(tmp_path, pid, range(start * 130, start * 130 + 130))
        (seconds,) = tmp_path.glob("*.counters.jsonl")
        (minutes,) = tmp_path.glob("*.counters-by-minute.jsonl")
        kept = [json.loads(line)["at_ns"] for line in seconds.read_text().splitlines()]
        ended = start * 130 + 130
        assert kept == [BEGIN_NS + second * SECOND_NS for second in range(ended - len(kept), ended)]
        assert min(ended, 200) <= len(kept) < 400
        times = [json.loads(line)["to_ns"] for line in minutes.read_text().splitlines()]
        assert times == sorted(times) and min(2 * start + 1, 4) <= len(times) < 6
    assert len(list(tmp_path.iterdir())) == 2


def test_a_start_leaves_files_of_others_and_half_lines_alone(tmp_path: Path) -> None:
    started_again(tmp_path, NO_PROCESS, range(3))
    killed = tmp_path / f"host.h.{NO_PROCESS}.counters.jsonl"
    killed.write_bytes(killed.read_bytes() + b'{"at_ns":17')
    other_host, running = tmp_path / "host.g.7.counters.jsonl", tmp_path / f"host.h.{os.getpid()}.counters.jsonl"
    for path in (other_host, running):
        path.write_text(json.dumps(sample(0)) + "\n")
    started_again(tmp_path, 1, range(3, 6))
    kept = [line["at_ns"] for line in lines(tmp_path, ".counters.jsonl")]
    assert kept == [BEGIN_NS + second * SECOND_NS for second in range(6)] and not killed.exists()
    for path in (other_host, running):
        assert len(path.read_text().splitlines()) == 1


# nvidia-smi topo -m of a host with two GPUs and two cards (driver 550), colours and legend included
MATRIX = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPIX\tSYS\t0-55\t0\t\tN/A
GPU1\tNV18\t X \tSYS\tPIX\t56-111\t1\t\tN/A
NIC0\tPIX\tSYS\t X \tSYS\t\t\t\t
NIC1\tSYS\tPIX\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""


def test_the_matrix_pair_by_pair() -> None:
    found = parse_matrix(MATRIX)
    links = {"GPU0-GPU1": "NV18", "GPU0-NIC0": "PIX", "GPU0-NIC1": "SYS", "GPU1-NIC0": "SYS", "GPU1-NIC1": "PIX"}
    assert found["links"] == {**links, "NIC0-NIC1": "SYS"}
    assert found["nics"] == {"NIC0": "mlx5_0", "NIC1": "mlx5_1"}
    assert parse_matrix("") == {"links": {}, "nics": {}}
    # Older drivers name cards as the system does: an unknown name leaves the columns behind it their places.
    found = parse_matrix("\tGPU0\tibp1s0\tmlx5_1\tCPU Affinity\nGPU0\t X \tSYS\tPIX\t0-55\nmlx5_1\tPIX\tNODE\t X \n")
    assert found["links"] == {"GPU0-mlx5_1": "PIX"}


def write(root: Path, **files: str) -> None:
    root.mkdir(parents=True)
    for name, text in files.items():
        (root / name).write_text(text + "\n")


def test_what_the_kernel_says_and_a_host_without_any_of_it(tmp_path: Path) -> None:
    assert set(read_topology(tmp_path)) <= {"links", "nics"}
    pci = tmp_path / "bus/pci/devices"
    widths = {"current_link_width": "8", "max_link_width": "16", "max_link_speed": "32.0 GT/s PCIe", "numa_node": "-1"}
    write(pci / "0000:17:00.0", vendor="0x10de", **{"class": "0x030200"}, **widths)
    write(pci / "0000:00:01.0", vendor="0x8086", **{"class": "0x060400"})
    write(tmp_path / "class/net/eth0", speed="100000")
    write(tmp_path / "class/net/eth0/device", numa_node="1")
    write(tmp_path / "class/net/lo", speed="0")
    port = {"rate": "400 Gb/sec (4X NDR)", "state": "4: ACTIVE", "link_layer": "InfiniBand"}
    write(tmp_path / "class/infiniband/mlx5_0/ports/1", **port)
    found = read_topology(tmp_path)
    (gpu,) = found["gpus"]
    assert (gpu["vendor"], gpu["pcie_width"], gpu["pcie_width_max"], gpu["numa_node"]) == ("nvidia", 8, 16, None)
    assert found["network"] == {"eth0": {"speed_mbit_s": 100_000, "numa_node": 1}}
    assert found["infiniband"]["mlx5_0/1"] == port | {"state": "ACTIVE"}
