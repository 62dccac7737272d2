"""`ddprof plan`: the best value of a setting and the best layout over devices, from a run or from a model's shape."""

from ddprof.slice import Command, Slice

SLICE = Slice(
    "planning",
    commands={
        "plan": Command(
            "ddprof.slices.planning.command",
            "Plan a setting from what a run measured, with a curve.",
            "Fix and prove",
            after="whatif",
        )
    },
)
