"""Mutations by family: small pure functions of a tree and a source of random numbers."""

from collections import ChainMap
from collections.abc import Callable, Mapping
from random import Random

from fuzzing.mutations import events, folders, tables, texts, values
from fuzzing.tree import Tree

Mutation = Callable[[Tree, Random], Tree]
# Family -> its mutations. A case first chooses a family, so that a family of few has its turn.
FAMILIES: Mapping[str, Mapping[str, Mutation]] = {
    **{"texts": texts.MUTATIONS, "values": values.MUTATIONS, "events": events.EVENTS, "headers": events.HEADERS},
    **{"archives": folders.ARCHIVES, "places": folders.PLACES},
    **{"databases": tables.DATABASES, "pickles": tables.PICKLES, "rings": tables.RINGS},
}
AS_IT_IS = "as_it_is"  # of inputs that failed before: nothing is changed
MUTATIONS: Mapping[str, Mutation] = ChainMap({AS_IT_IS: lambda tree, draw: tree}, *map(dict, FAMILIES.values()))
# After these the recording is the same, and so must be the report.
SAME_RECORDING = frozenset({"header_last", "archive"})
