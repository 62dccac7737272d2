"""The host's connections, from what its tools and its kernel say."""

from pathlib import Path

from ddprof.capture.launcher.host.topology import parse_matrix, read_topology

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


def test_a_card_of_an_unknown_name_leaves_the_columns_behind_it_their_places() -> None:
    """Older drivers name cards as the system does."""
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
