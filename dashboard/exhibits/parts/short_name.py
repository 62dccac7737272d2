"""Names of kernels as tables and charts show them: the words that tell them apart."""

from __future__ import annotations

import re

_NOISE = re.compile(r"^void |\b(?:at::native::|at::cuda::|c10::|std::)|\(anonymous namespace\)::")
MOST_CHARS = 48


def short_name(name: str, most_chars: int = MOST_CHARS) -> str:
    """A kernel's name without its arguments and the namespaces of PyTorch, cut where it is still long."""
    short = _NOISE.sub("", _without_arguments(name)).strip() or name
    return short if len(short) <= most_chars else f"{short[: most_chars - 1]}…"


def _without_arguments(name: str) -> str:
    """ "void f<int>(int, long)" -> "void f<int>": the last pair of parentheses, where it closes a C++ name."""
    if not name.endswith(")") or "(" not in name:
        return name
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[at], 0)
        if depth == 0:
            before = name[:at]
            return before if before and not before.endswith((" ", "::")) else name
    return name
