"""End of a JSON value."""

import json
from typing import Any

import kineto_text as kt
from hypothesis import given

from ddprof.readers.json_text.structure import structure


@given(kt.JSON)
def test_structure_finds_where_a_value_ends(value: Any) -> None:
    text = json.dumps([value]).encode()
    assert structure(text[1:]).close() == len(text) - 2
