"""Sizes of a job, its groups and its batches, as Megatron prints them before it begins."""

from __future__ import annotations

import re

from ddprof.readers.numbers import one_rank

# "using world size: 8, data-parallel size: 4, context-parallel size: 1, ..." and, of the arguments,
# "  tensor_model_parallel_size ...................... 2"
_STATED = re.compile(
    r"(?<![\w-])(?P<what>world|tensor[-_]model[-_]parallel|pipeline[-_]model[-_]parallel|context[-_]parallel"
    r"|expert[-_]model[-_]parallel|data[-_]parallel|micro_batch|global_batch)[ _-]size"
    r"(?:: | \.{3,} )(?P<size>\d{1,7})(?=[,\s])"
)


def sizes_of(text: str) -> dict[str, int]:
    """The sizes that a line states: "world", "tensor", "pipeline", "context", "expert", "data", and of batches "micro",
    "global".
    """
    sizes = {}
    for stated in _STATED.finditer(f"{text} "):
        size = one_rank(stated["size"])
        if size:
            sizes[re.split("[-_]", stated["what"])[0]] = size
    return sizes
