"""Mutations of the folder itself: what lies beside or in place of a file and is no plain file."""

from collections.abc import Callable, Mapping
from random import Random

from fuzzing.tree import Entry, Fifo, Link, Socket, Tree, Unreadable, Vanishing, files, with_file, without

_NAMES = ("caf\udce9.json", "rank\udcff0.json", "new\nline.json", "\x1b[31mred.json", "a" * 250, "-o.json", "~")
_NAMES += ("*", "rank0.json.tmp", "notes.txt", "latest", "run.sidecar.json", "manifest.json.json", " .json", "é.json")


def _name(tree: Tree, draw: Random) -> str:
    """The name of a file of the run, or of one that was not there."""
    mine = sorted(path for path in tree if path.startswith("run/"))
    return draw.choice((*mine, f"run/{draw.choice(_NAMES)}", "run/sub/rank7.json", "run/rank1.sidecar.json"))


def special(tree: Tree, draw: Random) -> Tree:
    """A pipe, a socket, a link to a device, a loop of links or a folder without rights."""
    links = (Link(f"/dev/{device}") for device in ("zero", "null", "tty"))
    entry: Entry = draw.choice((Fifo(), Socket(), *links, Unreadable(), Unreadable(b"{}")))
    return with_file(tree, _name(tree, draw)[:180], entry)


def loop(tree: Tree, draw: Random) -> Tree:
    """Links that lead to themselves or up the folder."""
    target = draw.choice((".", "..", "self", "../run", "/proc/self/fd", "/proc/self/root/proc"))
    return with_file(tree, f"run/{draw.choice(('self', 'sub/self', 'rank3.json'))}", Link(target))


def dangling(tree: Tree, draw: Random) -> Tree:
    """A link to what is gone: `latest` of a deleted run, a note on another disk."""
    name = draw.choice(("run/latest", "run/notes.txt", "run/rank0.json", "run/.hidden", "run/x.tmp", _name(tree, draw)))
    return with_file(tree, name, Link(draw.choice(("gone", "/no/such/place", "a" * 250))))


def vanishing(tree: Tree, draw: Random) -> Tree:
    """A file that is deleted between two looks at it: a job that still writes, a clean-up."""
    name, content = draw.choice(sorted(files(tree)))
    return with_file(tree, name, Vanishing(content, draw.choice((1, 2, 3, 4))))


def odd_name(tree: Tree, draw: Random) -> Tree:
    """A file by a name that is not UTF-8, has control characters, or looks like an option."""
    name = draw.choice(sorted(path for path in tree if path.startswith("run/")))
    new = f"run/{draw.choice(_NAMES)}"
    return {new if path == name else path: entry for path, entry in tree.items()}


def folder_for_file(tree: Tree, draw: Random) -> Tree:
    name = _name(tree, draw)
    return {**without(tree, name), f"{name}/inside.json": b"{}"}


def beside(tree: Tree, draw: Random) -> Tree:
    """Files that have nothing to do with the run."""
    odd = (b"{}", b"", b"PAR1" + b"\0" * 99, b"SQLite format 3" + b"\0" * 201, b"\x89PNG", b"PK\x03\x04", b"\x80\x04.")
    odd += (b"<html>", b'{"nodes": [{"fw_parent": 1}]}', b"version https://git-lfs.github.com/spec/v1", b"ARROW1")
    odd += (b"\x80\x04cos\nsystem\n(S'true'\ntR.", b"BZh9", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"\x1f\x8b")
    return with_file(tree, f"run/{draw.choice(_NAMES)}", draw.choice(odd))


def missing(tree: Tree, draw: Random) -> Tree:
    name = draw.choice(sorted(path for path in tree if path.startswith("run/")))
    return {**without(tree, name), "run/README.md": b"x"}


def deep(tree: Tree, draw: Random) -> Tree:
    """The run some hundred folders down."""
    path = "d/" * draw.choice((3, 300))
    return {name.replace("run/", f"run/{path}", 1): entry for name, entry in tree.items()}


_ALL = (special, loop, dangling, vanishing, odd_name, folder_for_file, beside, missing, deep)
MUTATIONS: Mapping[str, Callable[[Tree, Random], Tree]] = {f"place_{m.__name__}": m for m in _ALL}
