"""Text layouts of events and files: Kineto's own, a key per line, or compact."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

EventText = Callable[[str, str, str], str]


def classic(head: str, times: str, args: str) -> str:
    """Kineto: header keys on a line, times on the next, args indented."""
    body = f"    {head},\n    {times}"
    return f'  {{\n{body},\n    "args": {{\n      {args}\n    }}\n  }}' if args else f"  {{\n{body}\n  }}"


def lines(head: str, times: str, args: str) -> str:
    """One key per line."""
    keys = ",\n    ".join(_split_keys(head) + _split_keys(times))
    return f'  {{\n    {keys}\n    ,\n    "args": {{\n      {args}\n    }}\n  }}' if args else f"  {{\n    {keys}\n  }}"


def compact(head: str, times: str, args: str) -> str:
    """Everything on one line, no spaces to spare."""
    return f'{{{head},{times},"args":{{{args}}}}}' if args else f"{{{head},{times}}}"


def _split_keys(text: str) -> list[str]:
    return [part if i == 0 else '"' + part for i, part in enumerate(text.split(', "'))]


LAYOUTS: dict[str, EventText] = {"classic": classic, "lines": lines, "compact": compact}


def document(head: dict[str, Any], events: Iterable[str], tail: dict[str, Any], layout: str) -> str:
    """The whole file. `head` and `tail` are the keys before and after `traceEvents`."""
    separator = "," if layout == "compact" else ",\n"
    open_keys = "".join(f'  "{key}": {json.dumps(value)},\n' for key, value in head.items())
    close_keys = "".join(f',\n  "{key}": {json.dumps(value)}' for key, value in tail.items())
    return f'{{\n{open_keys}  "traceEvents": [\n{separator.join(events)}\n  ]{close_keys}\n}}\n'
