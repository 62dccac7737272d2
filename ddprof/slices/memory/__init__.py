"""Memory snapshots: what a device held at its peak, from the allocator's own events, model to command."""

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
