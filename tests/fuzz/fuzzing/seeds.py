"""The sound inputs that are mutated: those of `sound/`, shipped samples, and recordings of others where they exist."""

import json
import os
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

from fuzzing.tree import Tree

REPOSITORY = Path(__file__).resolve().parents[3]
FOUND, SOUND = (Path(__file__).resolve().parents[1] / name for name in ("found", "sound"))
MAX_SEED_BYTES = 250_000  # larger recordings take seconds each
_NOT_INPUT = ("label.json", "truth.json", "README.md", "LICENSE")
_SHARED = ("oracle_samples", "traces", "wild/labelled", "wild/recordings")
SAVED = "saved"  # its report is made of a sample when it is first asked for

# Each its own parallelism and findings; all twenty-three take too long to load for a short run.
SAMPLES = ("healthy", "late_loader", "slow_stage", "sync", "unfused_optimizer", "sharding")


def shared_folder() -> Path | None:
    """Recordings kept beside the checkout, or where $DDPROF_SHARED_TRACES says; None where there are none."""
    stated = os.environ.get("DDPROF_SHARED_TRACES")
    folder = Path(stated) if stated else REPOSITORY.parent / "shared"
    return folder if (folder / "traces").is_dir() else None


def of_repository() -> dict[str, Callable[[], Tree]]:
    samples = {f"sample-{name}": partial(_folder, REPOSITORY / "sample_traces" / name / "traces") for name in SAMPLES}
    sound = {path.name: partial(_below, path) for path in sorted(SOUND.iterdir()) if path.is_dir()}
    of_jax = partial(_folder, REPOSITORY / "tests" / "slices" / "xla" / "samples")
    return {**sound, SAVED: _saved, "xplane": of_jax, **samples}


def kept_inputs() -> dict[str, Callable[[], Tree]]:
    """Inputs that once failed: of the repository ("found-..."), and of the shared folder where it is ("broken-...")."""
    found = {f"found-{path.name}": partial(_below, path) for path in sorted(FOUND.iterdir()) if path.is_dir()}
    broken = (shared_folder() or Path("/nowhere")) / "wild" / "broken"
    for folder, folders, names in os.walk(broken):
        folders.sort()
        if names:
            found["broken-" + "-".join(Path(folder).relative_to(broken).parts)] = partial(_folder, Path(folder))
    return found


def least_events(name: str) -> int:
    """Events that the readers must keep of an input of the repository that failed before; 0 where that is not said."""
    told = json.loads((FOUND / "what.json").read_text(encoding="utf-8"))
    return int(told.get(name.removeprefix("found-"), {}).get("least_events", 0))


def all_seeds() -> dict[str, Callable[[], Tree]]:
    """Seeds of the repository and every small folder of shared recordings."""
    found = of_repository()
    shared = shared_folder()
    for top in (shared / part for part in _SHARED) if shared else ():
        for folder, folders, names in os.walk(top):
            folders[:] = sorted(name for name in folders if name[0] != ".")
            files = [Path(folder) / name for name in names if name not in _NOT_INPUT]
            if files and sum(file.stat().st_size for file in files) < MAX_SEED_BYTES:
                name = "shared-" + "-".join(Path(folder).relative_to(shared).parts)
                found[name] = partial(_folder, Path(folder))
    return found


@lru_cache(maxsize=64)
def seed(name: str) -> Tree:
    """The tree of a seed. Raises KeyError where there is none of that name here."""
    if name.startswith(("found-", "broken-")):
        return kept_inputs()[name]()
    return (all_seeds() if name.startswith("shared-") else of_repository())[name]()


def _folder(folder: Path) -> Tree:
    files = [file for file in sorted(folder.iterdir()) if file.is_file() and file.name not in _NOT_INPUT]
    return {f"run/{file.name}": file.read_bytes() for file in files}


def _below(folder: Path) -> Tree:
    """A folder of a kept input as it is, `run/` and `home/` included."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _saved() -> Tree:
    from ddprof.api import analyze  # only this seed needs ddprof to make it

    run = analyze(REPOSITORY / "sample_traces" / "late_loader" / "traces", cache=False)
    return {"run/report.json": json.dumps(run.to_dict(), indent=1).encode()}
