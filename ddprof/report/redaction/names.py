"""Public names of a trace: those made only of words of PyTorch and the vendors' libraries.

A name is split into identifiers, so that a team's kernel is hidden inside a public one's template arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files

# Identifiers; any letter that is not ASCII is part of one, and so is `$` (Java, Triton).
PIECE = re.compile(r"[\w$\u0080-\U0010ffff]+")
LEAST_WORD = 3  # characters of a word that makes single letters beside it (gemm_tn_n) public
MAX_SINGLES = 2  # single letters in an identifier: more would spell something
_DTYPE = r"(?:bf|tf|fp|[fsuie])(?:4|8|16|32|64)(?!\d)"
_NUMBER = re.compile(rf"\d{{1,12}}(?:x\d{{1,6}})*(?:x|ul?|l)?|{_DTYPE}")  # 128x64, 5x, 4096ul, bf16
_WORDS = re.compile(rf"c10d?|{_DTYPE}|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+(?:x\d+)*(?:x|ul?)?(?![a-z])|\d+")
# Words that names of PyTorch, CUDA, ROCm and their libraries are made of, in lower case. Operators and autograd nodes:
# the words of all that torch 2.13 registers. Kernels, runtime calls, template arguments: those of cuBLAS, cuDNN,
# CUTLASS, CUB, NCCL, FBGEMM, Triton and at::native, as their public sources spell them.
KERNEL_WORDS = frozenset(files("ddprof.report.redaction").joinpath("kernel_words.txt").read_text("utf-8").split())


def renamed(name: str, alias: Callable[[str], str]) -> str:
    """The name with every private identifier replaced by its alias."""
    return PIECE.sub(lambda m: m.group() if is_public(m.group()) else alias(m.group()), name)


def is_public(identifier: str) -> bool:
    """True where every word of an identifier is public: ampere_sgemm_128x64_tn, AddmmBackward0, ProfilerStep."""
    words = [word for part in re.split(r"[_$]+", identifier) for word in _split(part)]
    public = [word for word in words if word.lower() in KERNEL_WORDS]
    singles = sum(len(word) == 1 and word.isalpha() for word in words)
    numbers = sum(_NUMBER.fullmatch(word) is not None for word in words)
    if len(public) + singles + numbers < len(words):
        return False
    return singles == 0 or (singles <= MAX_SINGLES and (len(words) == 1 or any(len(w) >= LEAST_WORD for w in public)))


def _split(part: str) -> list[str]:
    """Words of an identifier part, by case and digits; non-ASCII text is one word, which is never public."""
    if part.lower() in KERNEL_WORDS or not part.isascii():
        return [part]
    return _WORDS.findall(part)
