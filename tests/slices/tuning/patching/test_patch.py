"""Scripts edited at the lines that make an object: valid diffs, formatting and comments kept, doubtful calls left."""

import re
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("libcst")

from ddprof.settings.catalogue import Value
from ddprof.settings.wanted import WantedFix
from ddprof.slices.tuning.patching.patch import ScriptPatch, script_patch

DATA = "from torch.utils.data import DataLoader\n"
FOUR: dict[str, Value] = {"num_workers": 4}
PERSISTENT, RESHARD = {"persistent_workers": True}, {"reshard_after_forward": False}
EDITS = [
    *(("(data«|, num_workers=4»)\n", FOUR), ("(data«|, num_workers=4»)", FOUR)),
    ("(data, num_workers = «args.workers|4», shuffle=True«|, persistent_workers=True»)  # why\n", FOUR | PERSISTENT),
    ("(\n    data,  # all\n    batch_size=8,\n    shuffle=True,  # always\n«|    num_workers=4,\n»)\n", FOUR),
    ("(\n    data,\n    batch_size=8«|,»  # few\n«|    num_workers=4\n»)\n", FOUR),
    ("(data,\r\n\tbatch_size=8«|,\r\n\tnum_workers=4»)\r\n\x0c\r\n", FOUR),
    ("(data, multiprocessing_context='«fork|spawn»')\n", {"multiprocessing_context": "spawn"}),
]
IMPORTS = [
    ("import torch", "torch.utils.data.DataLoader(d)", FOUR),
    ("import torch.utils.data as data", "data.DataLoader(d)", FOUR),
    ("from torch.nn.parallel import DistributedDataParallel as D", "D(m, device_ids=[0])", {"bucket_cap_mb": 50}),
    ("from torch.optim import AdamW", "AdamW(model.parameters(), lr=1e-3)", {"fused": True}),
    ("import torch", "self.optimizer.zero_grad(set_to_none=False)", {"set_to_none": True}),
    ("from torch.distributed.fsdp import fully_shard", "fully_shard(block)", RESHARD),
]
DOUBTFUL = [
    ("DataLoader(data, **settings)\n", FOUR, r"\* or \*\*"),
    ("DataLoader(data, 8, False, None, None, 0)\n", FOUR, "by position"),
    *(("DataLoader(x for x in y)\n", FOUR, "generator"), ("make_loader(data)\n", FOUR, "no call of DataLoader")),
    *(("a, b = DataLoader(x), DataLoader(y)\n", FOUR, "several"), ("x = (\n", FOUR, "cannot be parsed")),
    ("import torch; torch.optim.SGD(p, foreach=True)\n", {"fused": True}, "foreach is set beside"),
    ("import torch; torch.distributed.fsdp.FullyShardedDataParallel(m)\n", RESHARD, "another name"),
    ("DataLoader(data, num_workers=(\n    2  # two\n))\n", FOUR, "comment"),
]


def _patch(folder: Path, source: str, values: dict[str, Value], line: int = 2) -> ScriptPatch:
    (folder / "train.py").write_bytes(source.encode())
    return script_patch([WantedFix(values, f"train.py:{line}")], folder)


def _applied(folder: Path, patch: ScriptPatch) -> str:
    (folder / "fix.patch").write_bytes(patch.diff.encode())
    subprocess.run(["git", "apply", "--whitespace=nowarn", "fix.patch"], cwd=folder, check=True, capture_output=True)
    return (folder / "train.py").read_bytes().decode()


@pytest.mark.parametrize(("edited", "values"), EDITS)
def test_a_call_gets_values_keeps_its_form(tmp_path: Path, edited: str, values: dict[str, Value]) -> None:
    """Places that differ are written «before|after»."""
    before, after = (re.sub(r"«([^|]*)\|([^»]*)»", side, edited) for side in (r"\1", r"\2"))
    patch = _patch(tmp_path, f"{DATA}loader = DataLoader{before}", values)
    assert patch.by_hand == () and _applied(tmp_path, patch) == f"{DATA}loader = DataLoader{after}"


@pytest.mark.parametrize(("imports", "call", "values"), IMPORTS)
def test_a_name_counts_by_its_import(tmp_path: Path, imports: str, call: str, values: dict[str, Value]) -> None:
    patch = _patch(tmp_path, f"{imports}\nx = {call}\n", values)
    ((name, value),) = values.items()
    assert patch.by_hand == () and f"{name}={value}" in _applied(tmp_path, patch)


@pytest.mark.parametrize(("source", "values", "why"), DOUBTFUL)
def test_a_doubtful_call_is_left_to_people(tmp_path: Path, source: str, values: dict[str, Value], why: str) -> None:
    patch = _patch(tmp_path, DATA + source, values)
    assert patch.diff == "" and patch.edited == ()
    ((_, reason),) = patch.by_hand
    assert re.search(why, reason)


def test_a_class_of_that_name_from_elsewhere_is_not_torchs(tmp_path: Path) -> None:
    patch = _patch(tmp_path, "from mine import DataLoader\nDataLoader(data)\n", FOUR)
    assert "imported from torch" in patch.by_hand[0][1]


def test_a_byte_order_mark_stays_and_is_no_edit(tmp_path: Path) -> None:
    patch = _patch(tmp_path, f"\ufeff{DATA}DataLoader(data)\n", FOUR)
    assert [line for line in patch.diff.splitlines() if line[0] == "-" and line[:3] != "---"] == ["-DataLoader(data)"]
    patch = _patch(tmp_path, f"\ufeff{DATA}DataLoader(data, num_workers=4)\n", FOUR)
    assert patch.diff == "" and len(patch.already) == 1


def test_several_fixes_of_several_scripts_are_one_patch(tmp_path: Path) -> None:
    source = f"import torch\n{DATA}\n\ndef main(model):\n    loader = DataLoader(\n        data,\n"
    source += "        batch_size=4,\n    )\n    model = torch.nn.parallel.DistributedDataParallel(model)\n"
    (tmp_path / "train.py").write_text(f"{source}    return torch.optim.AdamW(model.parameters()), loader\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "val.py").write_text(DATA + "loader = DataLoader(data)\n")
    fixes = [WantedFix({"num_workers": 4, "pin_memory": True}, "train.py:6")]
    fixes += [WantedFix({"bucket_cap_mb": 50}, "./train.py:10"), WantedFix({"fused": True}, "train.py:11")]
    fixes += [WantedFix({"num_workers": 1}, "lib/val.py:2"), WantedFix({"gc_interval": 50})]
    fixes += [WantedFix({"prefetch_factor": 3}, at) for at in ("", "gone.py:1", "../elsewhere.py:1")]
    patch = script_patch(fixes, tmp_path)
    assert patch.edited == tuple(fixes[:4])
    assert [why.split(":")[0] for _, why in patch.by_hand] == [
        "it belongs to the launcher",
        "the line that makes the object is not known",
        f"there is no {tmp_path / 'gone.py'}",
        f"there is no {tmp_path.parent / 'elsewhere.py'}",
    ]
    changed = _applied(tmp_path, patch)
    # Recorded in another place: a container, by an absolute path, from a folder below.
    recorded = ("/workspace/job/lib/val.py:2", str(tmp_path / "lib/val.py:2"), "sub/../lib/val.py:2")
    again = script_patch([WantedFix({"num_workers": 1}, at) for at in recorded], tmp_path)
    assert again.diff == "" and len(again.already) == len(recorded) and not again.by_hand
    assert "batch_size=4,\n        num_workers=4,\n        pin_memory=True,\n    )\n" in changed
    assert "DistributedDataParallel(model, bucket_cap_mb=50)" in changed and "fused=True" in changed
    assert (tmp_path / "lib" / "val.py").read_text().endswith("DataLoader(data, num_workers=1)\n")
