"""A group that knows its commands by name and help line, and imports one when it is called: `--help` stays quick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ddprof.cli.lasting import import_lasting
from ddprof.errors import UsageError
from ddprof.outside.meant import meant

Commands = Mapping[str, tuple[str, str]]  # name -> (module that holds the click command as `command`, one line of help)


class LazyGroup(click.Group):
    """Commands under the headings of `--help`, in its order; help and completion do not name the `unlisted` ones."""

    def __init__(
        self, *args: Any, listed: Mapping[str, Commands], unlisted: Commands | None = None, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self._groups = listed
        self._listed = [name for rows in listed.values() for name in rows]
        tables = (*listed.values(), unlisted or {})
        self._modules = {name: module for rows in tables for name, (module, _) in rows.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return self._listed.copy()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None where there is none of that name."""
        if cmd_name not in self._modules:
            return None
        found = import_lasting(self._modules[cmd_name]).command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; a command that there is none of is answered with the one that was meant."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in self._modules and not ctx.resilient_parsing:
            raise UsageError(f"no command {name!r}{meant(name, self._modules)}; `ddprof --help` lists them")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command lists of `--help`, from the table: nothing is imported."""
        width = max(map(len, self._listed))
        for heading, rows in self._groups.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), help_line) for name, (_, help_line) in rows.items()])
