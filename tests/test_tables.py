"""Tables and schemas: what is checked, what is sent between processes, and choosing rows."""

import pickle
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddprof.analyzers.facts.model import STEPS
from ddprof.errors import UsageError
from ddprof.tables import NULL, Column, Schema, among, distinct, first_rows, stable_order, to_parquet

TWO = Schema("two columns of a test", Column("at_ns", "int64", ""), Column("name", "str", ""))


def test_a_missing_an_unknown_and_a_shorter_column_are_refused_and_none_is_needed() -> None:
    whole = {"at_ns": [1], "name": ["a"]}
    wrong = {"name": {"at_ns": [1]}, "other": {**whole, "other": [1]}, "unequal": {**whole, "at_ns": [1, 2]}}
    for words, columns in wrong.items():
        with pytest.raises(ValueError, match=words):
            TWO.table(columns)
    one_name = TWO.table({"at_ns": [2, 1], "name": "a"})  # one value for all rows
    assert (one_name["name"].tolist(), one_name.ordered("at_ns")["at_ns"].tolist()) == (["a", "a"], [1, 2])
    empty = TWO.empty()
    assert (list(empty.columns), len(empty)) == (["at_ns", "name"], 0)
    assert (empty["at_ns"].dtype, empty["name"].dtype) == (np.int64, object)


def test_what_needs_a_library_of_tables_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for use in (TWO.empty().to_pandas, lambda: to_parquet(TWO.empty())):
        with pytest.raises(UsageError, match=r"need pyarrow: pip install 'ddprof\[tables\]'"):
            use()


def test_a_table_that_was_sent_has_the_schema_of_this_process_and_a_second_one_its_own() -> None:
    assert pickle.loads(pickle.dumps(STEPS.empty())).schema is STEPS
    second = Schema(STEPS.name, *TWO.columns)
    assert pickle.loads(pickle.dumps(second)) == second != STEPS


@given(st.lists(st.integers(0, 40)), st.lists(st.integers(0, 40), unique=True))
def test_among_finds_what_numpy_finds(values: list[int], few: list[int]) -> None:
    assert among(np.array(values, np.int32), np.array(few, np.int64)).tolist() == np.isin(values, few).tolist()


@given(st.lists(st.tuples(st.integers(-3, 9), st.sampled_from([NULL, 0, 7, 2**40]), st.booleans()), max_size=40))
def test_distinct_finds_what_numpy_finds(rows: list[tuple[int, int, bool]]) -> None:
    columns = [np.array([row[at] for row in rows], dtype) for at, dtype in enumerate((np.int8, np.int64, bool))]
    kinds, which = distinct(*columns)
    known, expected = np.unique(np.stack(columns), axis=1, return_inverse=True)
    assert (kinds.tolist(), which.tolist()) == (known.tolist(), expected.ravel().tolist())


@given(st.lists(st.integers(0, 9)))
def test_kinds_are_sorted_as_numpy_sorts_them(kinds: list[int]) -> None:
    values = np.array(kinds, np.int64)
    assert stable_order(values).tolist() == np.argsort(values, kind="stable").tolist()
    assert first_rows(values).tolist() == np.unique(values, return_index=True)[1].tolist()
