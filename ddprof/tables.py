"""Tables: a documented schema, numpy columns, parquet at the edge.

A `Table` is what every stage hands to the next. In memory a missing integer is `NULL` (the smallest int64, as numpy's
own NaT) and a missing float is NaN; on disk and in reports both are null.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from ddprof.errors import UsageError

Array = npt.NDArray[Any]
_FEW = 16
_SPARSE = 16  # values that could be, for each that is: a table of them is then no dearer than to sort
NULL = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class Column:
    """One column: numpy dtype ("str" for text), meaning with unit, and whether values may be missing."""

    name: str
    dtype: str
    meaning: str
    nullable: bool = False


_SCHEMAS: dict[str, Schema] = {}  # of this process, the first of each name


def _schema(name: str) -> Schema:
    return _SCHEMAS[name]


@dataclass(frozen=True, init=False)
class Schema:
    """The columns of a table, in order. Drives empty tables, validation, parquet and the columns page of the docs."""

    name: str
    columns: tuple[Column, ...]

    def __init__(self, name: str, *columns: Column) -> None:
        vars(self).update(name=name, columns=columns)
        _SCHEMAS.setdefault(name, self)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickle by name where it is known, so that tables of other processes share this process's schemas."""
        is_known = _SCHEMAS.get(self.name) is self
        return (_schema, (self.name,)) if is_known else (Schema, (self.name, *self.columns))

    def empty(self) -> Table:
        """A table with these columns and no rows."""
        return self._empty

    @cached_property
    def _empty(self) -> Table:
        """The one table without rows: a rank has twenty of them, and a job thousands of ranks."""
        return Table(self, {name: np.empty(0, dtype) for name, dtype in self._dtypes.items()})

    @cached_property
    def _dtypes(self) -> dict[str, np.dtype[Any]]:
        """numpy types by column name, in order."""
        return {c.name: np.dtype(object if c.dtype == "str" else c.dtype) for c in self.columns}

    def table(self, columns: Mapping[str, Any]) -> Table:
        """A table of this schema from one array-like per column, or one value for all rows, cast to the schema's types.

        Raises ValueError where a column is missing, unknown, or of another length.
        """
        dtypes = self._dtypes
        if dtypes.keys() != columns.keys():
            raise ValueError(f"{self.name}: columns differ from the schema: {sorted(dtypes.keys() ^ columns.keys())}")
        arrays = {name: np.asarray(columns[name], dtype) for name, dtype in dtypes.items()}
        shapes = {array.shape[:1] for array in arrays.values()}
        rows = shapes - {()}
        if len(rows) != 1:
            raise ValueError(f"{self.name}: columns of unequal length")
        if shapes != rows:
            shape = rows.pop()
            arrays |= {name: np.full(shape, array) for name, array in arrays.items() if not array.ndim}
        return Table(self, arrays)


@dataclass(frozen=True)
class Table:
    """Columns of one schema. Rows are never changed in place; `take` returns a new table."""

    schema: Schema
    columns: Mapping[str, Array]

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickle without what is remembered of it; one without rows is the schema's own."""
        return (Table, (self.schema, self.columns)) if len(self) else (Schema.empty, (self.schema,))

    def __len__(self) -> int:
        for column in self.columns.values():
            return len(column)
        return 0

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    @property
    def bounds(self) -> tuple[Array, Array]:
        """(start_ns, end_ns) of a table whose rows are spans of time."""
        return self.columns["start_ns"], self.columns["end_ns"]

    def bounds_of(self, rows: Array) -> tuple[Array, Array]:
        """(start_ns, end_ns) of the rows selected by a mask or an index array; the other columns are not read."""
        return self.columns["start_ns"][rows], self.columns["end_ns"][rows]

    def take(self, rows: Array) -> Table:
        """The rows selected by a boolean mask or an index array."""
        if not len(self) or (isinstance(rows, np.ndarray) and rows.dtype == bool and rows.all()):
            return self
        return Table(self.schema, {name: column[rows] for name, column in self.columns.items()})

    def ordered(self, by: str = "start_ns") -> Table:
        """The rows in the order of a column; those with equal values keep their order."""
        return self.take(np.argsort(self.columns[by], kind="stable"))

    def replace(self, **columns: Any) -> Table:
        """The table with some columns replaced."""
        return self.schema.table({**self.columns, **columns})

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows as dicts of Python values, missing as None. For small tables and output only."""
        names = list(self.columns)
        for values in zip(*(_python_values(self.columns[n]) for n in names), strict=True):
            yield dict(zip(names, values, strict=True))

    def to_arrow(self) -> Any:
        """A pyarrow.Table, nulls where the schema allows them and the value is missing. May raise UsageError."""
        pa = library("pyarrow")
        fields = {}
        for column in self.schema.columns:
            data = self.columns[column.name]
            mask = None
            if column.nullable and data.dtype == np.int64:
                mask = data == NULL
            elif column.nullable and data.dtype.kind == "f":
                mask = np.isnan(data)
            fields[column.name] = pa.array(data, mask=mask)
        return pa.table(fields)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame (pandas is imported here, not before). Raises UsageError without it."""
        library("pandas")
        return self.to_arrow().to_pandas()


def library(name: str) -> Any:
    """A module of pandas or pyarrow, which only the extra `tables` brings. Raises UsageError where it is missing."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        raise UsageError(
            f"data frames, parquet and files packed by zstd need {package}: pip install 'ddprof[tables]'"
        ) from error


def concat(schema: Schema, tables: list[Table]) -> Table:
    """All rows of `tables`, in order."""
    tables = [table for table in tables if len(table)]
    if len(tables) < 2:
        return tables[0] if tables else schema.empty()
    return schema.table({c.name: np.concatenate([t[c.name] for t in tables]) for c in schema.columns})


def of_kinds(kind: Array, wanted: Iterable[int]) -> Array:
    """Mask of the events (`kind`: their column) of the wanted kinds, by a look-up table as kinds are few."""
    is_wanted = np.zeros(256, bool)
    is_wanted[list(wanted)] = True
    return np.asarray(is_wanted[kind])


def among(values: Array, few: Array) -> Array:
    """Mask of the values among a few, such as the threads of a rank; cheaper than np.isin for a few values."""
    if len(few) > _FEW:
        return np.isin(values, few)
    mask = np.zeros(len(values), bool)
    for one in few.tolist():
        mask |= values == one
    return mask


def distinct(*columns: Array) -> tuple[Array, Array]:
    """The different rows of columns of whole numbers, sorted, of shape (columns, kinds), and the kind of each row.

    np.unique by an axis answers the same, and compares rows byte by byte for it.
    """
    kind, kinds = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        number, count = _dense(column)
        kind, kinds = _dense(kind * count + number)
    row = np.empty(kinds, np.int64)
    row[kind] = np.arange(len(kind))
    return np.stack([column[row] for column in columns]), kind


def _dense(values: Array) -> tuple[Array, int]:
    """The place of each value among the different ones, and the number of these."""
    if not len(values):
        return np.empty(0, np.int64), 0
    values = values.astype(np.int64, copy=False)
    low, high = int(values.min()), int(values.max())
    if high - low > _SPARSE * len(values):  # what is missing lies far below what is not
        low = int(values.min(initial=high, where=values != low)) - 1
        values = np.maximum(values, low)
    if high - low > _SPARSE * len(values):
        different, place = np.unique(values, return_inverse=True)
        return place, len(different)
    is_given = np.zeros(high - low + 1, bool)
    is_given[values - low] = True
    place = np.cumsum(is_given) - 1
    return place[values - low], int(place[-1]) + 1


def first_rows(kind: Array) -> Array:
    """The first row of each kind, by kind; kinds are numbers from 0 on, as those of strings are."""
    row = np.full(int(kind.max(initial=-1)) + 1, -1)
    row[kind[::-1]] = np.arange(len(kind))[::-1]
    return row[row >= 0]


def stable_order(kind: Array) -> Array:
    """The order that sorts kinds as `distinct` numbers them, and keeps that of rows of one kind."""
    few = not len(kind) or int(kind.max()) < 2**16  # numpy sorts 16 bits without comparing them
    return np.argsort(kind.astype(np.uint16) if few else kind, kind="stable")


def ordinals(kind: Array) -> Array:
    """Number of earlier rows of the same kind, for each row."""
    order = np.argsort(kind, kind="stable")
    place = np.empty(len(kind), np.int64)
    place[order] = np.arange(len(kind)) - np.searchsorted(kind[order], kind[order])
    return place


def to_parquet(table: Table) -> bytes:
    """One table as zstd parquet. Raises UsageError without pyarrow."""
    content = io.BytesIO()
    library("pyarrow.parquet").write_table(table.to_arrow(), content, compression="zstd")
    return content.getvalue()


def _python_values(data: Array) -> list[Any]:
    if data.dtype == np.int64:
        return [None if v == NULL else v for v in data.tolist()]
    if data.dtype.kind == "f":
        return [None if v != v else v for v in data.tolist()]
    return list(data.tolist())
