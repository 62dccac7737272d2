"""A running job: late ranks, a trace window on demand, an end of capture, and the page Live."""

from ddprof.slice import Command, Slice

_GROUP = "Watch and debug"
SLICE = Slice(
    "live",
    commands={
        "status": Command("ddprof.slices.live.status", "Show which rank is behind in a running job.", _GROUP),
        "trigger": Command("ddprof.slices.live.trigger", "Open a trace window on a running job.", _GROUP),
        "stop": Command("ddprof.slices.live.stop", "End capture in a running job; the job goes on.", _GROUP),
    },
    pages=("ddprof.slices.live.exhibits",),
)
