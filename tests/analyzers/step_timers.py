"""Two gloo ranks and records of their steps, as if capture had timed them inside and outside the window."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from captured import prices_with
from gloo_traces import Events, all_reduce, annotation, in_steps

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.replay.price import Pricer

STEPS, LOAD_US, WORK_US, TRANSFER_US = 8, 10_000.0, 18_000.0, 2_000.0
STEP_US = LOAD_US + WORK_US + TRANSFER_US


def loaded(folder: Path, iterator: str = "_SingleProcessDataLoaderIter") -> LoadedRun:
    """Two gloo ranks: 10 ms of loading in the training process, 18 ms of work, an all-reduce that is waited for."""

    def play(rank: int, began: float) -> Events:
        loading = annotation(rank, f"enumerate(DataLoader)#{iterator}.__next__", began, LOAD_US)
        return [loading, *all_reduce(rank, began + LOAD_US + WORK_US, WORK_US, TRANSFER_US)]

    return in_steps(folder, STEPS, STEP_US, play)


def records(
    traced_us: Sequence[float], unprofiled_us: Sequence[float], data_us: float, **phases_us: tuple[float, float]
) -> list[dict[str, Any]]:
    """Warm-up, the window, the step that writes it, the steps without it; `phases_us`: (inside, outside) of each."""
    lengths = [*[(90_000.0, False)] * 3, *((us, True) for us in traced_us), (500_000.0, False)]
    now, steps = 0, []
    for index, (us, profiled) in enumerate([*lengths, *((us, False) for us in unprofiled_us)]):
        end = now + int(us * 1e3)
        load = int((LOAD_US if profiled else data_us) * 1e3)
        phases = {f"{name}_ns": int(us[not profiled] * 1e3) for name, us in phases_us.items()}
        steps.append({"index": index, "start_ns": now, "end_ns": end, "data_ns": load, "profiled": profiled, **phases})
        now = end
    return steps


def priced(
    run: LoadedRun, unprofiled_us: Sequence[float], data_us: float = LOAD_US, workers: int = 0, **timed: Any
) -> Pricer:
    steps = records([STEP_US] * STEPS, unprofiled_us, data_us)
    return prices_with(run, {"steps": steps, "dataloader": {"num_workers": workers}, **timed})
