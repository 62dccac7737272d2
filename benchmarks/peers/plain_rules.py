"""An hour's script in place of a tool: sums of each rank's file, nothing matched between ranks. Prints JSON."""

from __future__ import annotations

import gzip
import json
import statistics
import sys
from pathlib import Path
from typing import Any

Spans = list[tuple[float, float]]


def main() -> None:
    """The late rank is the one with the least time in collective kernels, as the others wait for it inside theirs."""
    ranks = {rank: figures for rank, figures in map(_of_file, Path(sys.argv[1]).iterdir()) if figures}
    collective = {rank: figures["communication"] for rank, figures in ranks.items()}
    late = min(collective, key=collective.__getitem__, default=None)
    others = [share for rank, share in collective.items() if rank != late]
    answer = {
        "late": late,
        "late_share": statistics.median(others) - collective[late] if others and late is not None else 0.0,
        "shares": {
            "communication": statistics.fmean(figures["exposed"] for figures in ranks.values()) if ranks else 0.0,
            "host side": statistics.fmean(figures["idle"] for figures in ranks.values()) if ranks else 0.0,
        },
    }
    print(json.dumps(answer))


def _of_file(file: Path) -> tuple[int, dict[str, float]]:
    """Rank, and shares of the time between its first and last kernel: in collectives, in nothing else, and idle."""
    document: dict[str, Any] = json.loads(
        gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    )
    kernels = [e for e in document["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy") and e.get("dur")]
    rank = int(document.get("distributedInfo", {}).get("rank", 0))
    if not kernels:
        return rank, {}
    spans = [(float(e["ts"]), float(e["ts"]) + float(e["dur"]), "nccl" in str(e["name"])) for e in kernels]
    whole_us = max(end for _, end, _ in spans) - min(begin for begin, _, _ in spans)
    busy_us = _covered([(begin, end) for begin, end, _ in spans])
    collective_us = _covered([(begin, end) for begin, end, is_nccl in spans if is_nccl])
    compute_us = _covered([(begin, end) for begin, end, is_nccl in spans if not is_nccl])
    return rank, {
        "communication": collective_us / whole_us,
        "exposed": (busy_us - compute_us) / whole_us,
        "idle": 1 - busy_us / whole_us,
    }


def _covered(spans: Spans) -> float:
    total, last = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, last))
        last = max(last, end)
    return total


if __name__ == "__main__":
    main()
