"""The server: tools that only read, made with the official `mcp` package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from ddprof._version import __version__
from ddprof.errors import DdprofError
from ddprof.slices.assistants.answers import Allowed, Answers, explain

T = TypeVar("T")
_INSTRUCTIONS = """ddprof says why distributed PyTorch training is slow, what to change, and what that saves.
Begin with list_runs, then verdict. Gains of findings overlap: never add them, ask what_if. A finding names the culprit
ranks, not those that wait for them. What is under "Not judged" is unknown, not fine."""
Stated = list[str] | dict[str, str | bool | int | float]  # KEY=VALUE, or {KEY: VALUE}
_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def _listed(stated: Stated) -> list[str]:
    """Settings as a list of KEY=VALUE, from a list or an object."""
    return stated if isinstance(stated, list) else [f"{key}={value}" for key, value in stated.items()]


def make_server(allowed: Allowed) -> MCPServer:
    """A server whose tools read the runs that are allowed."""
    server, answers = (
        MCPServer("ddprof", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING"),
        Answers(),
    )

    @server.tool(annotations=_READS)
    def list_runs() -> str:
        """The recorded runs, the newest first: the names that the other tools take."""
        listing = _told(allowed.runs)
        more = [f"[{listing.left_out} older runs are left out]"] if listing.left_out else []
        return "\n".join([*listing.names, *more]) or "no run was recorded below the folders that may be read"

    @server.tool(annotations=_READS)
    def verdict(run: str) -> str:
        """Explain why a run is slow: its bottleneck, where step time goes, and findings with ranks, gains and fixes."""
        return _told(lambda: answers.verdict(allowed.path(run)))

    @server.tool(annotations=_READS)
    def finding(run: str, id: str) -> str:
        """One finding of a run with its evidence, fixes, price and the grounds of its confidence, as JSON. id: as the
        verdict prints it, for example input.straggler."""
        return _told(lambda: answers.finding(allowed.path(run), id))

    @server.tool(annotations=_READS)
    def what_if(run: str, settings: Stated, now: Stated | None = None) -> str:
        """The step time of a run with settings changed, replayed all together. settings: KEY=VALUE, or KEY=VALUE@RANKS,
        for example ["num_workers=4", "bandwidth=2", "compute=1.3@5"]. now: KEY=VALUE of the run as it was, where it was
        not recorded (a refusal names it). Both may be objects: {"num_workers": 4}."""
        return _told(lambda: answers.what_if(allowed.path(run), _listed(settings), _listed(now or [])))

    @server.tool(annotations=_READS)
    def compare(before: str, after: str) -> str:
        """Compare two runs: which cause changed, by how much, and whether the change is within noise."""
        return _told(lambda: answers.compare(allowed.path(before), allowed.path(after)))

    @server.tool(annotations=_READS)
    def kernels(run: str, contains: str = "", most: int = 20) -> str:
        """The kernels (on CPU ranks: operators) of a run with most time, with module and line where recorded, as JSON;
        contains: a part of the name of kernel, operator, module or line."""
        return _told(lambda: answers.kernels(allowed.path(run), contains, most))

    @server.tool(annotations=_READS)
    def explain_finding(id: str) -> str:
        """Explain a finding: what it detects, why it costs, how its gain is priced, how to fix it, and its limits."""
        return _told(lambda: explain(id))

    @server.tool(annotations=_READS)
    def hang(run: str) -> str:
        """Explain why a job hangs or failed: which rank, which collective, which line."""
        return _told(lambda: answers.hang(allowed.path(run)))

    return server


def _told(answer: Callable[[], T]) -> T:
    """The answer; an error in the question or the input becomes the line that a person would get."""
    try:
        return answer()
    except DdprofError as error:
        raise ToolError(str(error)) from error
