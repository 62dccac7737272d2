"""HolisticTraceAnalysis's figures on one folder of traces, as JSON. Run by its own interpreter."""

from __future__ import annotations

import json
import sys

from hta.trace_analysis import TraceAnalysis  # type: ignore[import-not-found]


def main() -> None:
    """Shares are means over ranks, of the time that HTA saw; the late rank is its first potential straggler, and
    `late_share` how much more of their time the others spend in exposed communication.
    """
    analysis = TraceAnalysis(trace_dir=sys.argv[1])
    time = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
    idle, _ = analysis.get_idle_time_breakdown(ranks=list(time.index), visualize=False)
    exposed = time["non_compute_time_pctg"] / 100
    causes = idle.groupby("idle_category")["idle_time"].sum()
    host = float(causes.get("host_wait", 0.0) / causes.sum()) if causes.sum() else 0.0
    shares = {
        "communication": float(exposed.mean()),
        "host side": float((time["idle_time_pctg"] / 100).mean()) * host,
    }
    late, late_share = None, 0.0
    try:
        late = int(analysis.get_potential_stragglers(num_candidates=1)[0])
        late_share = float(exposed.drop(late).median() - exposed[late])
    except (ValueError, IndexError, KeyError):  # it finds no significant communication kernel
        late = None
    print(json.dumps({"late": late, "late_share": late_share, "shares": shares}))


if __name__ == "__main__":
    main()
