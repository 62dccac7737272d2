"""Text of a tree of Dash components."""

import json
from collections.abc import Iterator

from dash.development.base_component import Component


def texts(component: object) -> Iterator[str]:
    """All text of a tree of components, in order, tables that are drawn later among it."""
    if isinstance(component, str):
        yield component
    elif isinstance(component, list | tuple):
        for child in component:
            yield from texts(child)
    elif isinstance(component, Component):
        if (table := getattr(component, "data-sheet", None)) is not None:
            yield table
        yield from texts(getattr(component, "children", None))


def serialised(content: list[Component]) -> str:
    return json.dumps([c.to_plotly_json() for c in content], default=lambda c: c.to_plotly_json())
