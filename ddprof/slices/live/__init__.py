"""A running job: late ranks, a trace window on demand, an end of capture, and the page Live."""

from ddprof.slice import Command, Slice

_GROUP, _MODULE = "Watch and debug", "ddprof.slices.live.commands"
SLICE = Slice(
    "live",
    commands={
        "status": Command(_MODULE, "Show which rank is behind in a running job.", _GROUP, name="status"),
        "trigger": Command(_MODULE, "Open a trace window on a running job.", _GROUP, name="trigger"),
        "stop": Command(_MODULE, "End capture in a running job; the job goes on.", _GROUP, name="stop"),
    },
    pages=("ddprof.slices.live.exhibits",),
)
