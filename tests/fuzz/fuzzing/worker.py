"""Runs cases in this process: plants the input, asks, judges."""

import shutil
import sys
from functools import cache
from pathlib import Path

from fuzzing import judge, reports
from fuzzing.answers import Answer, Setting, ask, watch_opens
from fuzzing.cases import JSON, Case
from fuzzing.counts import kept_events
from fuzzing.judge import Bounds, Failure, Sound
from fuzzing.seeds import least_events, seed
from fuzzing.tree import Unreadable, plant

FIRST = ("analyze {} --format json", "report {} -o out/r.html", "export {} -o out/t.json", "whatif {} --set compute=2")


class Worker:
    """One process's share of the work; each case gets a folder of its own below `base`."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._sound = cache(self._sound_of)
        sys.addaudithook(watch_opens)

    def warm_up(self) -> None:
        """Import what commands import when they are first called, so that no case pays for it."""
        folder = self._new_folder("warm-up")
        plant(seed("on_devices"), folder)
        for line in FIRST:
            ask(line.format("run").split(), folder, Setting())
        shutil.rmtree(folder)

    def run(self, case: Case, bounds: Bounds) -> list[Failure]:
        """Failures of the answers to a case."""
        folder = self._new_folder(f"case-{case.number}")
        try:
            return self._run(case, folder, bounds)
        finally:
            _remove(folder)

    def _run(self, case: Case, folder: Path, bounds: Bounds) -> list[Failure]:
        vanishing = plant(case.tree, folder)
        if "{sound}" in " ".join(case.command):
            plant({f"sound/{name}": entry for name, entry in case.sound.items()}, folder)
        as_nobody = any(isinstance(entry, Unreadable) for entry in case.tree.values())
        setting = Setting(vanishing, case.is_native, as_nobody)
        places = {"target": case.target, "out": "out", "sound": f"sound/{_target(case.seed)}"}
        arguments = [part.format(**places) for part in case.command]
        first = ask(arguments, folder, setting)
        found = list(judge.of_answer(first, case, folder, bounds))
        if case.again and first.error is None and not vanishing:
            if case.of_cache:
                _damage_cache(case, folder)
            second = ask(arguments, folder, setting)
            found += judge.of_answer(second, case, folder, bounds)
            found += judge.of_second(first, second)
        if case.is_kept and case.command == JSON and first.error is None:
            kept, least = sum(kept_events(folder / case.target, case.is_native).values()), least_events(case.seed)
            if kept < least:
                found.append(Failure("greedy drop", "", f"{kept} events kept, at least {least} are sound"))
        is_comparable = case.command == JSON and not case.of_cache and not case.is_kept
        if is_comparable and first.error is None and not found and not vanishing:
            found += self._against_the_seed(first, case, folder)
        return list(dict.fromkeys(found))

    def _against_the_seed(self, answer: Answer, case: Case, folder: Path) -> list[Failure]:
        sound = self._sound(case.seed, case.is_native)
        found = list(judge.of_recording(answer, case, sound))
        if any(case.tree.get(path) not in (case.sound[path], None) for path in sound.kept) and answer.code == 0:
            kept = _below(folder, kept_events(folder / case.target, case.is_native))
            found += judge.of_counts(answer, case, kept, sound)
        return found

    def _sound_of(self, name: str, is_native: bool) -> Sound:
        """Result of the unchanged seed. Raises RuntimeError where that fails, as its cases cannot be judged then."""
        folder = self._new_folder(f"sound-{name}")
        plant(seed(name), folder)
        answer = ask([part.format(target=_target(name)) for part in JSON], folder, Setting(is_native=is_native))
        kept = _below(folder, kept_events(folder / "run", is_native))
        shutil.rmtree(folder)
        if answer.error is not None:
            raise RuntimeError(f"the seed {name} itself fails: {answer.error}")
        return Sound(reports.parsed(answer.stdout) if answer.code == 0 else None, kept)

    def _new_folder(self, name: str) -> Path:
        folder = self._base / name
        _remove(folder)
        folder.mkdir()
        return folder


def _below(folder: Path, kept: dict[str, int]) -> dict[str, int]:
    """By paths in the tree."""
    return {str(Path(path).relative_to(folder)): count for path, count in kept.items()}


def _target(seed_name: str) -> str:
    return "run/report.json" if seed_name == "saved" else "run"


def _damage_cache(case: Case, folder: Path) -> None:
    below = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    if kept := {str(name): path.read_bytes() for name, path in below.items() if "cache" in name.parts}:
        plant(case.damage_cache(kept), folder)


def _remove(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
