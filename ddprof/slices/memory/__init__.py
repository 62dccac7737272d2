"""Memory snapshots: device memory at its peak, from the allocator's events."""

from ddprof.slice import Command, Slice

SLICE = Slice(
    "memory",
    commands={
        "memory": Command(
            "ddprof.slices.memory.command", "Say what a memory snapshot's peak is made of.", "Watch and debug"
        )
    },
    formats=("ddprof.slices.memory.format",),
    answers=("ddprof.slices.memory.answer",),
)
