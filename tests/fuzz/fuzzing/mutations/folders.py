"""Mutations of packing: the run inside an archive, or inside one that is odd, hostile or enormous; and of the folder
itself: what lies beside or in place of a file and is no plain file."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random

from fuzzing.tree import Entry, Fifo, Link, Socket, Tree, Unreadable, Vanishing, files, without

BOMB_BYTES = 3 << 30  # unpacked: more than a reader may keep, quick enough to skip
_ODD_NAMES = ("/etc/rank0.json", "../../rank0.json", "rank0.json\n", "a/" * 200 + "r.json", "rank\x1b[31m0.json", "")
_ODD_NAMES += ("rank\udce9\udcff0.json", "C:\\rank0.json", ".hidden/rank0.json", "rank0.json/", "con.json", "-rf.json")
_NAMES = ("caf\udce9.json", "rank\udcff0.json", "new\nline.json", "\x1b[31mred.json", "a" * 250, "-o.json", "~")
_NAMES += ("*", "rank0.json.tmp", "notes.txt", "latest", "run.sidecar.json", "manifest.json.json", " .json", "é.json")


def _inputs(tree: Tree) -> list[tuple[str, bytes]]:
    return [(name.removeprefix("run/"), content) for name, content in files(tree) if name.startswith("run/")]


def _tar(members: Iterable[tuple[str, bytes]], links: Iterable[tuple[str, str]] = ()) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for name, target in links:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return out.getvalue()


def _zip(members: Iterable[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name.encode("utf-8", "replace").decode()), content)
    return out.getvalue()


def _alone(tree: Tree, name: str, content: bytes) -> Tree:
    return {**{path: entry for path, entry in tree.items() if not path.startswith("run/")}, f"run/{name}": content}


def archive(tree: Tree, draw: Random) -> Tree:
    """The run in one archive: it reads the same."""
    inside = _inputs(tree)
    how = draw.choice(("tar", "tar.gz", "tar.xz", "tar.bz2", "zip"))
    content = _zip(inside) if how == "zip" else _tar(inside)
    pack = {"tar.gz": partial(gzip.compress, mtime=0), "tar.xz": lzma.compress, "tar.bz2": bz2.compress}.get(how)
    return _alone(tree, f"run.{how}", pack(content) if pack else content)


def damaged_archive(tree: Tree, draw: Random) -> Tree:
    """An archive cut short, or with some of its bytes changed."""
    content = draw.choice((_tar, _zip))(_inputs(tree))
    if draw.random() < 0.5:
        content = content[: draw.randrange(len(content))]
    for _ in range(draw.choice((0, 1, 20))):
        at = draw.randrange(len(content) or 1)
        content = content[:at] + draw.randbytes(draw.choice((1, 4))) + content[at + 1 :]
    return _alone(tree, "run.zip", content)


def nested_archive(tree: Tree, draw: Random) -> Tree:
    content = _tar(_inputs(tree))
    for depth in range(draw.choice((1, 3, 30))):
        content = draw.choice((_tar, _zip))([(f"inner{depth}.tar", content)])
    return _alone(tree, "run.tar", content)


def odd_member_names(tree: Tree, draw: Random) -> Tree:
    """Members with names that point outside, are not text, or are the same."""
    inside = [(draw.choice((*_ODD_NAMES, name)), content) for name, content in _inputs(tree)]
    return _alone(tree, "run.tar", draw.choice((_tar, _zip))([(name or "x", content) for name, content in inside]))


def links_in_archive(tree: Tree, draw: Random) -> Tree:
    """Members that are links: to themselves, to one another, out of the archive."""
    targets = ("rank0.json", "rank1.json", "/dev/zero", "../../../../etc/passwd", "loop", "")
    links = [(name, draw.choice(targets)) for name in ("rank0.json", "rank1.json", "loop")]
    return _alone(tree, "run.tar", _tar(_inputs(tree), links))


def many_members(tree: Tree, draw: Random) -> Tree:
    extra = [(f"{n}/note{n}.json", b'{"a": 1}') for n in range(draw.choice((200, 3_000)))]
    return _alone(tree, "run.zip", draw.choice((_tar, _zip))([*_inputs(tree), *extra]))


def bomb(tree: Tree, draw: Random) -> Tree:
    """A small file that unpacks to gigabytes: in place of any file of the run, or beside it."""
    name, content = draw.choice(_inputs(tree) or [("rank0.json", b"")])
    text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    head = draw.choice((text, text[: len(text) // 2], b'{"schema": "ddprof.run/1", "x": "', b"[", b""))
    filler = draw.choice((b" ", b"0", b"[", b'{"a":', b"{},", b'"x",', b"\n", b"\0"))
    return {**tree, f"run/{draw.choice((name, 'more.json'))}": _packed_bomb(head, filler, draw)}


def _packed_bomb(head: bytes, filler: bytes, draw: Random) -> bytes:
    """`head`, then `filler` again and again, packed twice as tight by packing what is the same only once."""
    size = draw.choice((64 << 20, 512 << 20, BOMB_BYTES))
    piece = filler * ((1 << 20) // len(filler))
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    out = [packer.compress(head), packer.flush(zlib.Z_FULL_FLUSH)]
    block = zlib.compressobj(6, zlib.DEFLATED, -15)
    once = block.compress(piece) + block.flush(zlib.Z_FULL_FLUSH)
    out.append(once * (size // len(piece)))  # blocks after a full flush stand for themselves; the checksum is missing
    return b"".join(out)


_PACKED = (archive, damaged_archive, nested_archive, odd_member_names, links_in_archive, many_members, bomb)
ARCHIVES: Mapping[str, Callable[[Tree, Random], Tree]] = {mutation.__name__: mutation for mutation in _PACKED}


def _name(tree: Tree, draw: Random) -> str:
    """The name of a file of the run, or of one that was not there."""
    mine = sorted(path for path in tree if path.startswith("run/"))
    return draw.choice((*mine, f"run/{draw.choice(_NAMES)}", "run/sub/rank7.json", "run/rank1.sidecar.json"))


def special(tree: Tree, draw: Random) -> Tree:
    """A pipe, a socket, a link to a device, a loop of links or a folder without rights."""
    links = (Link(f"/dev/{device}") for device in ("zero", "null", "tty"))
    entry: Entry = draw.choice((Fifo(), Socket(), *links, Unreadable(), Unreadable(b"{}")))
    return {**tree, _name(tree, draw)[:180]: entry}


def loop(tree: Tree, draw: Random) -> Tree:
    """Links that lead to themselves or up the folder."""
    target = draw.choice((".", "..", "self", "../run", "/proc/self/fd", "/proc/self/root/proc"))
    return {**tree, f"run/{draw.choice(('self', 'sub/self', 'rank3.json'))}": Link(target)}


def dangling(tree: Tree, draw: Random) -> Tree:
    """A link to what is gone: `latest` of a deleted run, a note on another disk."""
    name = draw.choice(("run/latest", "run/notes.txt", "run/rank0.json", "run/.hidden", "run/x.tmp", _name(tree, draw)))
    return {**tree, name: Link(draw.choice(("gone", "/no/such/place", "a" * 250)))}


def vanishing(tree: Tree, draw: Random) -> Tree:
    """A file that is deleted between two looks at it: a job that still writes, a clean-up."""
    name, content = draw.choice(sorted(files(tree)))
    return {**tree, name: Vanishing(content, draw.choice((1, 2, 3, 4)))}


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
    return {**tree, f"run/{draw.choice(_NAMES)}": draw.choice(odd)}


def missing(tree: Tree, draw: Random) -> Tree:
    name = draw.choice(sorted(path for path in tree if path.startswith("run/")))
    return {**without(tree, name), "run/README.md": b"x"}


def deep(tree: Tree, draw: Random) -> Tree:
    """The run some hundred folders down."""
    path = "d/" * draw.choice((3, 300))
    return {name.replace("run/", f"run/{path}", 1): entry for name, entry in tree.items()}


_ALL = (special, loop, dangling, vanishing, odd_name, folder_for_file, beside, missing, deep)
PLACES: Mapping[str, Callable[[Tree, Random], Tree]] = {f"place_{m.__name__}": m for m in _ALL}
