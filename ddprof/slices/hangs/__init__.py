"""Jobs that hang or have failed: the first rank, collective and line at fault, from dumps to command."""

from ddprof.slice import Command, Slice

SLICE = Slice(
    "hangs",
    commands={
        "hang": Command(
            "ddprof.slices.hangs.command", "Say why a job hangs or failed: rank, collective, line.", "Watch and debug"
        )
    },
    failures=("ddprof.slices.hangs.explain",),
)
