"""Jobs that hang or have failed: which rank, which collective and which line it begins with, from dumps to command."""

from ddprof.slice import Command, Slice

SLICE = Slice(
    "hangs",
    commands={
        "hang": Command(
            "ddprof.slices.hangs.command", "Say why a job hangs or failed: rank, collective, line.", "Watch and debug"
        )
    },
    failures=("ddprof.slices.hangs.failure",),
)
