"""A group that knows its commands by name and help line, and imports one when it is called: `--help` stays quick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ddprof.cli.lasting import import_lasting

Commands = Mapping[str, tuple[str, str]]  # name -> (module that holds the click command as `command`, one line of help)


class LazyGroup(click.Group):
    """`listed` commands in the order in which users meet them; help and completion do not name the `unlisted` ones."""

    def __init__(self, *args: Any, listed: Commands, unlisted: Commands | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._listed = listed
        self._modules = {name: module for name, (module, _) in {**listed, **(unlisted or {})}.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self._listed)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None where there is none of that name."""
        if cmd_name not in self._modules:
            return None
        found = import_lasting(self._modules[cmd_name]).command
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command list of `--help`, from the table: nothing is imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in self._listed.items()])
