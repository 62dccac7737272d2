"""`ddprof doctor`: which parts of ddprof work here, which are missing, and how to get them."""

from ddprof.slice import Command, Slice

SLICE = Slice(
    "doctor",
    commands={
        "doctor": Command(
            "ddprof.slices.doctor.command",
            "Check what works here, what is missing, and how to get it.",
            "Watch and debug",
        )
    },
)
