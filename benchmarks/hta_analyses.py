"""HolisticTraceAnalysis on a folder: what it offers that is nearest to `ddprof analyze`. Run by its own interpreter.

    HTA_VENV/bin/python benchmarks/hta_analyses.py FOLDER

Prints its share of compute, communication and idle time per rank, the overlap, and its stragglers, as JSON.
"""

from __future__ import annotations

import json
import sys

from hta.trace_analysis import TraceAnalysis  # type: ignore[import-not-found]


def main() -> None:
    """Load all ranks, then temporal breakdown, overlap, idle time by cause and stragglers, with default options."""
    analysis = TraceAnalysis(trace_dir=sys.argv[1])
    temporal = analysis.get_temporal_breakdown(visualize=False)
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    idle, _ = analysis.get_idle_time_breakdown(ranks=list(range(len(temporal))), visualize=False)
    try:
        stragglers: list[int] | str = [int(rank) for rank in analysis.get_potential_stragglers()]
    except ValueError as error:  # where it finds no significant communication kernel
        stragglers = f"failed: {error}"
    tables = {"temporal": temporal, "overlap": overlap, "idle": idle}
    result = {name: json.loads(table.to_json(orient="records")) for name, table in tables.items()}
    print(json.dumps({**result, "stragglers": stragglers}))


if __name__ == "__main__":
    main()
