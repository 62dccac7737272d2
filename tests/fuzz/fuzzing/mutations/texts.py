"""Mutations of bytes: of any one file, packed or not, whatever it holds."""

import gzip
from collections.abc import Callable, Mapping, Sequence
from random import Random

from fuzzing.tree import Tree, files, packed_like, unpacked

Edit = Callable[[bytes, Random], bytes]
_LENGTHS = (1, 1, 2, 3, 8, 40, 300)
# Bytes that JSON or UTF-8 does not allow where they come to stand, or that a terminal obeys.
_ODD_BYTES = (b"\x00", b"\xe9", b"\xff\xfe", b"\x1b[31m", b"\xed\xa0\x80", b"\x07", b"\xc3", b"\n", b"\t", b"\x7f")
_ODD_WORDS = (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"nul", b"tru", b"0x10", b"01", b"-", b"'a'", b"9" * 5_000)
_PUNCTUATION = b'[]{}",:\\'


def _mutation(edit: Edit, is_packed: bool = False) -> Callable[[Tree, Random], Tree]:
    """One file of a tree edited: its text or, `is_packed`, the bytes on disk."""

    def mutation(tree: Tree, draw: Random) -> Tree:
        name, content = draw.choice(sorted(files(tree)))
        return {**tree, name: edit(content, draw) if is_packed else packed_like(content, edit(unpacked(content), draw))}

    return mutation


def flip(content: bytes, draw: Random) -> bytes:
    if not content:
        return content
    at = draw.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]


def cut_off(content: bytes, draw: Random) -> bytes:
    """The file ends early: a full disk, a killed process."""
    return content[: draw.randrange(len(content) + 1)]


def drop_punctuation(content: bytes, draw: Random) -> bytes:
    """A bracket, quote, comma or colon missing."""
    which = draw.choice(_PUNCTUATION.strip(b"\\"))
    places = [at for at, byte in enumerate(content[: 1 << 20]) if byte == which]
    if not places:
        return content
    at = draw.choice(places)
    return content[:at] + content[at + 1 :]


def odd_word(content: bytes, draw: Random) -> bytes:
    """A number replaced by a word that is none in JSON, or by one of 5,000 digits."""
    searched = range(1, min(len(content), 1 << 20))
    places = [at for at in searched if content[at - 1 : at] in b": [" and content[at : at + 1].isdigit()]
    if not places:
        return content
    at = draw.choice(places)
    end = at
    while end < len(content) and content[end : end + 1] in b"0123456789.-":
        end += 1
    return content[:at] + draw.choice(_ODD_WORDS) + content[end:]


def swap_halves(content: bytes, draw: Random) -> bytes:
    """Two parts of a file in the other order: two writers of one file."""
    first, second = sorted(draw.randrange(len(content) + 1) for _ in range(2))
    return content[second:] + content[first:second] + content[:first]


def empty(content: bytes, draw: Random) -> bytes:
    """Nothing, or only white space."""
    return draw.choice((b"", b" \n", b"\xef\xbb\xbf", b"{}", b"[]", b"null", b"0"))


def other_encoding(content: bytes, draw: Random) -> bytes:
    text = content.decode("utf-8", "replace")
    return text.encode(draw.choice(("utf-16", "utf-16-be", "utf-32", "utf-8-sig", "utf-7")), "replace")


def pack_again(content: bytes, draw: Random) -> bytes:
    """Packed once more than its name says, some of them in two members or with a tail."""
    packed = gzip.compress(content, compresslevel=1, mtime=0)
    return draw.choice((packed, packed + b"tail", packed[:-4], packed + gzip.compress(b"", mtime=0)))


def _replacing(new: Callable[[bytes, int, Random], bytes], lengths: Sequence[int] = ()) -> Edit:
    """A part of the bytes, of one of these lengths (by default of none), replaced by what is `new` for it."""

    def edit(content: bytes, draw: Random) -> bytes:
        at = draw.randrange(len(content) + 1)
        length = draw.choice(lengths) if lengths else 0
        return content[:at] + new(content[at : at + length], length, draw) + content[at + length :]

    return edit


_EDITS: Mapping[str, Edit] = {
    "overwrite": _replacing(lambda part, length, draw: draw.randbytes(length), _LENGTHS),
    "cut_out": _replacing(lambda part, length, draw: b"", _LENGTHS),
    "double": _replacing(lambda part, length, draw: part + part, _LENGTHS),
    # What a crashed machine leaves of a file.
    "zero_block": _replacing(lambda part, length, draw: b"\0" * len(part), (16, 512, 4096)),
    "insert_odd_byte": _replacing(lambda part, length, draw: draw.choice(_ODD_BYTES)),
    "insert_punctuation": _replacing(lambda part, length, draw: bytes([draw.choice(_PUNCTUATION)])),
    # A run of opening brackets: what a recursive parser does not survive.
    "nest": _replacing(lambda part, length, draw: draw.choice((b"[", b'{"a":')) * draw.choice((50, 2_000, 100_000))),
    **{edit.__name__: edit for edit in (flip, cut_off, drop_punctuation, odd_word, swap_halves, empty, other_encoding)},
    "pack_again": pack_again,
}
_ON_DISK = ("flip", "overwrite", "cut_out", "cut_off", "double", "zero_block", "empty")
MUTATIONS: Mapping[str, Callable[[Tree, Random], Tree]] = {
    **{f"text_{name}": _mutation(edit) for name, edit in _EDITS.items()},
    **{f"disk_{name}": _mutation(_EDITS[name], is_packed=True) for name in _ON_DISK},
}
