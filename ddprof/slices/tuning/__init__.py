"""`ddprof tune` and `ddprof patch`: fixes tried on the user's own command, and written into its scripts."""

from ddprof.slice import Command, Slice

_GROUP = "Fix and prove"
SLICE = Slice(
    "tuning",
    commands={
        "patch": Command(
            "ddprof.slices.tuning.patching.patch",
            "Turn fixes into a unified diff of the scripts.",
            _GROUP,
            after="plan",
        ),
        "tune": Command(
            "ddprof.slices.tuning.tune_command",
            "Try fixes on the job and keep those with a measured gain.",
            _GROUP,
            after="patch",
        ),
    },
)
