"""From a verdict to a file of fixes, and from there to a patch."""

import gzip
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ddprof.settings.fixes_file import parse_fixes


@pytest.fixture
def run(sample, tmp_path: Path) -> Path:
    """A sample as a run folder; its training thread makes the batches, so that their cost is known."""
    folder = tmp_path / "run"
    shutil.copytree(f"{sample('starved_loader')}/traces", folder)
    for trace in folder.glob("*.json.gz"):
        text = gzip.decompress(trace.read_bytes()).replace(b"_MultiProcessing", b"_SingleProcess")
        trace.write_bytes(gzip.compress(text, 1))
    (folder / "manifest.json").write_text('{"command": "torchrun train.py --epochs 3"}')
    return folder


def test_a_run_folder_gets_its_fixes_once(ddprof, run: Path) -> None:
    code, out, _ = ddprof("analyze", str(run))
    path = run / "FIXES.toml"
    assert code == 0 and f"Next: ddprof run --apply {path} -- torchrun train.py --epochs 3" in out
    (first, *_) = parse_fixes(path.read_text())
    assert first.values["num_workers"] and first.finding.startswith("input.")
    path.write_text(path.read_text() + "# mine\n")
    ddprof("analyze", str(run))
    assert path.read_text().endswith("# mine\n")
    code, out, _ = ddprof("analyze", str(run), "--format", "json")
    (fix, *_) = json.loads(out)["findings"][0]["fixes"]
    assert fix["applies"]["num_workers"] == first.values["num_workers"] and fix["at"] == []
    assert "FIXES.toml: " not in out  # it is no trace


def test_other_inputs_get_none_unless_it_is_asked_for(ddprof, run: Path, tmp_path: Path) -> None:
    (run / "manifest.json").unlink()
    ddprof("analyze", str(run))
    assert not (run / "FIXES.toml").exists()
    assert ddprof("analyze", str(run), "--fixes", str(tmp_path / "mine.toml"))[0] == 0
    assert parse_fixes((tmp_path / "mine.toml").read_text())


def test_what_leaves_no_file_of_fixes_says_so(ddprof, run: Path, sample, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    refused = {"not with --redact": ["--redact"], "not with --format html": ["-o", str(tmp_path / "page.html")]}
    for why, words in {**refused, "these are 2 runs; name one of them": [sample("healthy")]}.items():
        code, out, err = ddprof("analyze", str(run), "--fixes", str(path), *words)
        assert (code, out) == (2, "") and err.splitlines()[-1] == f"ddprof: --fixes: {why}"
    assert not path.exists()


def test_a_plan_as_fixes(ddprof, run: Path, tmp_path: Path) -> None:
    words = ("plan", "loader", str(run), "--now", "num_workers=0")
    code, _, err = ddprof(*words, "--fixes", str(tmp_path / "plan.toml"))
    assert code == 0 and "next: ddprof run --apply" in err
    (fix,) = parse_fixes((tmp_path / "plan.toml").read_text())
    assert set(fix.values) == {"num_workers"}


def test_fixes_become_a_patch_that_git_applies(ddprof, tmp_path: Path) -> None:
    pytest.importorskip("libcst")
    script = tmp_path / "train.py"
    script.write_text("from torch.utils.data import DataLoader\n\nloader = DataLoader(data, batch_size=8)\n")
    fixes = tmp_path / "FIXES.toml"
    rows = ('at = "train.py:3"\nset = { num_workers = 4 }', "set = { gc_interval = 100 }")
    fixes.write_text('schema = "ddprof.fixes/1"\n' + "".join(f"[[fix]]\n{row}\n" for row in rows))
    patch = tmp_path / "fix.patch"
    code, _, err = ddprof("patch", str(fixes), "--root", str(tmp_path), "--write-patch", str(patch))
    assert code == 0 and "by hand: gc_interval=100: it belongs to the launcher" in err and "1 fix;" in err
    subprocess.run(["git", "apply", str(patch)], cwd=tmp_path, check=True)
    assert "DataLoader(data, batch_size=8, num_workers=4)" in script.read_text()
    code, out, err = ddprof("patch", str(fixes), "--root", str(tmp_path))
    assert code == 0 and out == "" and "already applied: num_workers=4 at train.py:3" in err
    fixes.write_text(f'schema = "ddprof.fixes/1"\n[[fix]]\n{rows[1]}\n')
    code, out, err = ddprof("patch", str(fixes), "--root", str(tmp_path))
    assert code == 4 and out == "" and "no fix in it changes a script" in err
