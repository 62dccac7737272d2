"""`ddprof mcp`: verdicts, findings and predictions for assistants, by the Model Context Protocol."""

from ddprof.slice import Command, Slice

SLICE = Slice(
    "assistants",
    commands={
        "mcp": Command(
            "ddprof.slices.assistants.command",
            "Answer an assistant by the Model Context Protocol.",
            "Share and automate",
        )
    },
)
