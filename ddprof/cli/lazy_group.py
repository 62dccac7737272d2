"""A click group that imports a command only when it is called, so that `--help` is fast."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import click

from ddprof.errors import UsageError
from ddprof.untrusted.suggestions import meant

Commands = Mapping[str, tuple[str, str]]  # name -> (module of the click command, `:` and its name there, line of help)
Groups = Mapping[str, Commands]  # heading of `--help` -> commands
NEW_OBJECTS = 50_000  # between collections; at 700, as Python has it, they took 4 and 6 % of 1,024 ranks (2026-11-29)


class LazyGroup(click.Group):
    """Commands under the headings of `--help`, in its order.

    `all_listed` also returns commands of other packages, for help and for names that are not in `listed`.
    """

    def __init__(self, *args: Any, listed: Groups, all_listed: Callable[[], Groups], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._all_listed = all_listed
        self._modules = _modules(listed)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Command names in the order of the table."""
        return list(_modules(self._all_listed()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None for an unknown name."""
        module = self._modules.get(cmd_name) or _modules(self._all_listed()).get(cmd_name)
        if module is None:
            return None
        path, _, name = module.partition(":")
        command = getattr(import_lasting(path), name or "command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does, but answer an unknown command with the closest known one."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in self._modules and not ctx.resilient_parsing:
            everyone = self._modules | _modules(self._all_listed())
            if name not in everyone:
                raise UsageError(f"no command {name!r}{meant(name, everyone)}; `ddprof --help` lists them")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command lists of `--help` from the table, without imports."""
        groups = self._all_listed()
        width = max(map(len, _modules(groups)))
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), help_line) for name, (_, help_line) in rows.items()])


def _modules(groups: Groups) -> dict[str, str]:
    return {name: module for rows in groups.values() for name, (module, _) in rows.items()}


def import_lasting(name: str) -> ModuleType:
    """Import a module and freeze it and its imports (gc.freeze), also for processes forked later.

    Collections skip them, and forked processes share their pages (https://docs.python.org/3/library/gc.html#gc.freeze).
    Done once per module, because freezing also keeps whatever is garbage at that moment. What an analysis makes after
    that are tables, in no cycles: to look for some among them is rarely worth its time.
    """
    if name in sys.modules:
        return sys.modules[name]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.set_threshold(NEW_OBJECTS)
        if was_enabled:
            gc.enable()
