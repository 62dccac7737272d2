"""The server: tools that only read, made with the official `mcp` package."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from ddprof._version import __version__
from ddprof.errors import DdprofError
from ddprof.slices.assistants.answers import Allowed, Answers, bounded

P = ParamSpec("P")
_INSTRUCTIONS = """ddprof says why distributed PyTorch training is slow, what to change, and what that saves.
Begin with list_runs, then verdict. Gains of findings overlap: never add them, ask what_if. A finding names the culprit
ranks, not those that wait for them. What is under "Not judged" is unknown, not fine."""
_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def make_server(allowed: Allowed) -> MCPServer:
    """A server whose tools read the runs that are allowed."""
    server = MCPServer("ddprof", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING")
    tools = Answers(allowed)
    for tool in (
        *(tools.list_runs, tools.verdict, tools.finding, tools.what_if, tools.compare, tools.kernels),
        *(tools.explain_finding, tools.hang),
    ):
        server.tool(annotations=_READS)(_told(tool))
    return server


def _told(tool: Callable[P, str]) -> Callable[P, str]:
    """The tool with answers of bounded length; an error in the question or the input becomes the line that a person
    would get.
    """

    @wraps(tool)
    def told(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return bounded(tool(*args, **kwargs))
        except DdprofError as error:
            raise ToolError(str(error)) from error

    return told
