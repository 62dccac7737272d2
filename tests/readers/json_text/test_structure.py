"""Where a JSON value ends."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ddprof.readers.json_text.structure import structure

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_structure_finds_where_a_value_ends(value: Any) -> None:
    text = json.dumps([value]).encode()
    shape = structure(text)
    assert shape.first_end() == len(text)
    assert structure(text[1:]).close() == len(text) - 2
