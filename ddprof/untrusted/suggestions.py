"""The probable intended word, for an error line about an unknown name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

ALIKE = 0.75  # of difflib's ratio: two letters exchanged or one missing, no other word


def meant(word: str, names: Iterable[str]) -> str:
    """The similar name as a question: " (did you mean num_workers?)" for "numworkers"; "" where none is similar."""
    plain = {_letters(name): name for name in names}
    close = get_close_matches(_letters(word), plain, n=1, cutoff=ALIKE)
    return f" (did you mean {plain[close[0]]}?)" if close else ""


def _letters(word: str) -> str:
    """A name in lower case without separators, which are easily mistyped."""
    return "".join(letter for letter in word.lower() if letter.isalnum())
