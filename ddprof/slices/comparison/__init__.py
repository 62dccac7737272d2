"""Runs against one another: `ddprof compare`, `ddprof verify`, `ddprof history`, and the page History."""

from ddprof.slice import Command, Slice

_GROUP = "Fix and prove"
SLICE = Slice(
    "comparison",
    commands={
        "verify": Command(
            "ddprof.slices.comparison.verify_command",
            "Compare a prediction with the run made with the change.",
            _GROUP,
            after="tune",
        ),
        "compare": Command(
            "ddprof.slices.comparison.compare_command",
            "Say which cause changed between two runs, against the noise.",
            _GROUP,
            after="verify",
        ),
        "history": Command(
            "ddprof.slices.comparison.history_command",
            "Show a folder of runs over time, and where the step changed.",
            _GROUP,
            after="compare",
        ),
    },
    pages=("ddprof.slices.comparison.history_page",),
)
