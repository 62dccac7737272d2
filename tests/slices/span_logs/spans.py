"""Logs of spans of four ranks, made by hand."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANKS, STEPS = 4, 120
Extra = Callable[[int, int], float]  # of a rank and a step: seconds


def nothing(rank: int, step: int) -> float:
    return 0.0


def write(folder: Path, fetch: Extra = nothing, pause: Extra = nothing, save: Extra = nothing, titan=True) -> Path:
    """Logs as torchtitan writes them, or in the schema of docs/formats.md. The ranks meet in `fwd_bwd`. `fetch`: more
    time for a batch, `pause`: a collection before a step, `save`: by how much a save beside the step slows it."""
    draw, now = random.Random(5), 1.7e9
    lines: list[list[str]] = [[] for _ in range(RANKS)]

    def span(rank: int, name: str, step: int, begin: float, end: float, thread: int = 1) -> None:
        if titan:
            said: dict[str, Any] = {"rank": rank, "source": "training", "step": step, "tid": thread}
            ended = {"log_type_name": f"{name}_end", "value": (end - begin) * 1e3, "time_us": int(end * 1e6)}
            begun = {"log_type_name": f"{name}_start", "time_us": int(begin * 1e6)}
            lines[rank] += [json.dumps({**said, **begun}), json.dumps({**said, **ended})]
        else:
            where = {"start_us": int(begin * 1e6), "dur_us": (end - begin) * 1e6, "thread": thread}
            lines[rank].append(json.dumps({"rank": rank, "step": step, "span": name, **where}))

    for step in range(1, STEPS + 1):
        begins = [now + pause(rank, step) for rank in range(RANKS)]
        ready = [begin + 0.02 + 0.002 * draw.random() + fetch(rank, step) for rank, begin in enumerate(begins)]
        slowed = max(save(rank, step) for rank in range(RANKS))
        done = max(ready) + 0.4 + 0.004 * draw.random() + slowed + (5.0 if step == 1 else 0.0)
        for rank, begin in enumerate(begins):
            if begin > now:
                span(rank, "gc_collect", step, now, begin)
            span(rank, "fetching_batch", step, begin, ready[rank])
            span(rank, "fwd_bwd", step, ready[rank], done)
            span(rank, "optim", step, done, done + 0.03)
            span(rank, "step", step, begin, done + 0.03)
            if slowed:
                span(rank, "async_save", step, now, done + 0.02, thread=9)
        now = done + 0.032
    folder.mkdir(parents=True, exist_ok=True)
    for rank, told in enumerate(lines):
        (folder / f"training.global_rank_{rank}.jsonl").write_text("\n".join(told) + "\n", encoding="utf-8")
    return folder
