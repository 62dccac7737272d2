"""Names of a run that are not in its report but in its pages, and how a page is written without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import PurePath
from typing import Any, TypeVar

from ddprof.dashboard.session import Session

Something = TypeVar("Something")


def further_names(session: Session) -> dict[str, str]:
    """Hosts, trace files, process groups and captured loader settings: name -> kind; {} for a saved report."""
    if not session.has_traces:
        return {}
    job, found = session.job, {}
    for facts in job.ranks:
        found[facts.identity.host or ""] = "host"
        found[facts.path] = found[PurePath(facts.path).name] = "path"
    found.update({str(name): "group" for name in job.groups["name"] if not str(name).isdigit()})
    found.update(dict.fromkeys(_words(session.measures.settings.get("dataloader")), "setting"))
    return {name: kind for name, kind in found.items() if len(name) > 2}


def _words(value: object) -> list[str]:
    """Every text in nested settings that could be somebody's: not a number, not one of torch's own names."""
    if isinstance(value, Mapping):
        return [word for item in value.values() for word in _words(item)]
    if isinstance(value, list | tuple):
        return [word for item in value for word in _words(item)]
    return [value] if isinstance(value, str) and not value.startswith("torch.") else []


def rewritten(value: Something, text: Callable[[str], str]) -> Something:
    """A copy of plain data (dataclasses, sequences, mappings) in which every text went through `text`."""
    return _rewritten(value, text)  # type: ignore[no-any-return]


def _rewritten(value: Any, text: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, tuple | list):
        return type(value)(_rewritten(item, text) for item in value)
    if isinstance(value, Mapping):
        return {_rewritten(key, text): _rewritten(item, text) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _rewritten(getattr(value, f.name), text) for f in fields(value)})
    return value
