"""Archives are folders, and damaged ones are one line."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from random import Random

import pytest
from run_folders import rank_file, ranks_of, read_all

from ddprof.errors import NoUsableInput
from ddprof.readers import discover


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_damaged_archives_are_one_line(tmp_path: Path, kind: str) -> None:
    sound, random = io.BytesIO(), Random(kind)
    if kind == "zip":
        with zipfile.ZipFile(sound, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("rank0.json", random.randbytes(4000))
    else:
        with tarfile.open(fileobj=sound, mode=f"w:{kind.partition('.')[2]}") as tar:
            member = tarfile.TarInfo("rank0.json")
            member.size = 4000
            tar.addfile(member, io.BytesIO(random.randbytes(4000)))
    path = tmp_path / "archive"
    for _ in range(60):
        broken = bytearray(sound.getvalue())
        for _ in range(random.choice((1, 20))):
            broken[-random.randrange(1, random.choice((100, len(broken))))] = random.randrange(256)
        path.write_bytes(broken[: random.randrange(len(broken) // 2, len(broken) + 1)])
        with pytest.raises(NoUsableInput) as refused:
            discover([path])
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_archives_are_folders(tmp_path: Path, kind: str) -> None:
    paths = [rank_file(tmp_path / "in" / f"rank{r}.json", r) for r in range(2)]
    archive = tmp_path / f"run.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as file:
            for path in paths:
                file.write(path, f"run/{path.name}")
    else:
        with tarfile.open(archive, "w:gz" if kind.endswith("gz") else "w") as tar:
            for path in paths:
                tar.add(path, f"run/{path.name}")
    inventory = discover([archive])
    assert [t.identity.rank for t in read_all(inventory)] == [0, 1]
    assert [size for _, size in ranks_of(inventory)] == [2]
    assert inventory.sources[0].label.endswith("!run/rank0.json")
