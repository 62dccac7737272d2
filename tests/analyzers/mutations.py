"""Damage done to the files of a healthy run, which makes no rank slow: documents by name -> texts of damaged ones."""

import copy
import gzip
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Files = dict[str, dict[str, Any]]
Texts = dict[str, str]
Mutation = Callable[[Files, Files, random.Random], Texts]
_ON_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"}
UNMARKED = 8  # parts that a recording without step marks is cut to some of
_CALLS = {"cuda_runtime", "cuda_driver"}
LAUNCHES_LOSE = (_CALLS, _ON_DEVICE, _CALLS | _ON_DEVICE)


def load(folder: Path) -> Files:
    packed = sorted(folder.glob("*.json.gz"))
    return {path.name.removesuffix(".gz"): json.loads(gzip.decompress(path.read_bytes())) for path in packed}


def write(texts: Texts, folder: Path) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _text(document: dict[str, Any]) -> str:
    head = {key: value for key, value in document.items() if key != "traceEvents"}
    return json.dumps({**head, "traceEvents": document["traceEvents"]}, separators=(",", ":"))


def _texts(files: Files) -> Texts:
    return {name: _text(document) for name, document in files.items()}


def _changed(files: Files, names: Iterable[str], change: Callable[[list[Any]], list[Any]]) -> Texts:
    chosen = set(names)
    return {
        name: _text({**document, "traceEvents": change(document["traceEvents"])} if name in chosen else document)
        for name, document in files.items()
    }


def _some(files: Files, rng: random.Random, most: int | None = None) -> list[str]:
    return rng.sample(list(files), rng.randint(1, max(1, min(most or len(files), len(files)))))


def _is_timed(event: dict[str, Any]) -> bool:
    return event.get("ph") != "M" and "ts" in event


def _times(events: list[Any]) -> tuple[float, float]:
    own = [float(e["ts"]) for e in events if e.get("ph") == "X"]
    return min(own, default=0.0), max(own, default=0.0)


def cut(files: Files, _: Files, rng: random.Random) -> Texts:
    """Some files end early: as written, sorted by time, or operators first and then calls and kernels by time."""
    names, order = _some(files, rng), rng.choice(ORDERS)
    texts = _changed(files, files, order)
    return {name: text[: rng.randrange(len(text))] if name in names else text for name, text in texts.items()}


def _calls_last(events: list[Any]) -> list[Any]:
    """Events in Kineto's order: the operators, and then runtime calls and device work interleaved."""
    late = ("cuda_runtime", "cuda_driver", "ac2g", *_ON_DEVICE)
    return sorted(events, key=lambda e: (e.get("cat") in late, _start(e)))


ORDERS: list[Callable[[list[Any]], list[Any]]] = [list, lambda e: sorted(e, key=_start), _calls_last, _calls_last]


def _with_holes(hit: Callable[[Any], bool]) -> Mutation:
    def change(events: list[Any], rng: random.Random) -> list[Any]:
        first, last = _times(events)
        lengths = [rng.uniform(0.01, 0.25) * (last - first) for _ in range(rng.randint(1, 3))]
        spans = [(begin, begin + long) for long in lengths for begin in [rng.uniform(first, last - long)]]
        return [e for e in events if not (_is_timed(e) and hit(e) and any(a <= float(e["ts"]) < b for a, b in spans))]

    return _in_some(change)


def sampled(files: Files, _: Files, rng: random.Random) -> Texts:
    """Some files, or all, hold only a share of their events."""
    names = list(files) if rng.random() < 0.5 else _some(files, rng)
    share = rng.uniform(0.3, 0.97)
    return _changed(files, names, lambda events: [e for e in events if e.get("ph") != "X" or rng.random() < share])


def kth(files: Files, _: Files, rng: random.Random) -> Texts:
    """Some files, or all, hold only every k-th of their events, or lack every k-th."""
    names = list(files) if rng.random() < 0.5 else _some(files, rng)
    k, first, holds = rng.randint(2, 20), rng.randrange(20), rng.random() < 0.5
    hit = lambda at, e: e.get("ph") == "M" or ((at + first) % k == 0) == holds  # noqa: E731
    return _changed(files, names, lambda events: [e for at, e in enumerate(events) if hit(at, e)])


def shifted(files: Files, _: Files, rng: random.Random) -> Texts:
    """Every rank recorded other steps, sometimes none that all of them have; or all recorded the same few."""
    drawn = (lambda: random.Random(alike)) if (alike := rng.random()) < 0.25 else (lambda: rng)

    def change(events: list[Any]) -> list[Any]:
        marks = sorted(
            (float(e["ts"]), float(e["dur"]))
            for e in events
            if e.get("cat") == "user_annotation" and str(e["name"]).startswith(("ProfilerStep", "training_step"))
        )
        if not marks:
            first, last = _times(events)
            marks = [(first + k * (last - first) / UNMARKED, (last - first) / UNMARKED) for k in range(UNMARKED)]
        own = drawn()
        length = own.randint(1, max(1, len(marks) - 1))
        begin = own.randint(0, len(marks) - length)
        low, high = marks[begin][0], sum(marks[begin + length - 1])
        return [e for e in events if not _is_timed(e) or low <= float(e["ts"]) < high]

    return _changed(files, list(files), change)


def mixed(files: Files, others: Files, rng: random.Random) -> Texts:
    names = sorted(files)
    foreign = dict(zip(names, sorted(others), strict=False))
    taken = {name for name in _some(files, rng, max(1, len(files) - 1)) if name in foreign}
    kept = {name: _text(files[name]) for name in names if name not in taken}
    return kept | {foreign[name]: _text(others[foreign[name]]) for name in taken}


def both(files: Files, others: Files, rng: random.Random) -> Texts:
    return _texts(files) | {f"b_{n}" if n in files else n: text for n, text in _texts(others).items()}


def missing(files: Files, _: Files, rng: random.Random) -> Texts:
    gone = set(_some(files, rng, max(1, len(files) - 1)))
    return {name: _text(document) for name, document in files.items() if name not in gone or len(gone) == len(files)}


def _moved(events: list[Any], rng: random.Random, hit: Callable[[Any], bool] = lambda event: True) -> list[Any]:
    """Times of a clock off by microseconds to hours, since it was set or all along, or of another rate."""
    first, last = _times(events)
    offset_us, rate = rng.choice((-1, 1)) * 10 ** rng.uniform(0, 9.5), 1 + rng.choice((0.0, rng.uniform(-1e-4, 1e-4)))
    since, moved = rng.choice((first, rng.uniform(first, last))), copy.deepcopy(events)
    for event in moved:
        if _is_timed(event) and hit(event) and float(event["ts"]) >= since:
            event["ts"] = round(since + (float(event["ts"]) - since) * rate + offset_us, 3)
    return moved


def torn(files: Files, _: Files, rng: random.Random) -> Texts:
    """Blocks of some files are zeros, another file's, lost or there twice, as disks and copies fail."""
    texts = _texts(files)
    for name in _some(files, rng):
        stale, how = texts[rng.choice(list(texts))], rng.randrange(4)
        for _ in range(rng.randint(1, 3)):
            text, size = texts[name], rng.choice((512, 4096, 1 << 16, len(texts[name])))
            at = 512 * rng.randrange(len(text) // 512 + 1)
            block = text[at : at + size]
            new = ("\0" * len(block), stale[at : at + size], "", 2 * block)[how]
            texts[name] = text[:at] + new + text[at + size :]
    return texts


def without_kind(files: Files, _: Files, rng: random.Random) -> Texts:
    kinds = sorted({str(e["cat"]) for document in files.values() for e in document["traceEvents"] if "cat" in e})
    gone = set(rng.sample(kinds, min(len(kinds), rng.choice((1, 1, 2)))))
    return _changed(files, _some(files, rng), lambda events: [e for e in events if e.get("cat") not in gone])


def duplicated(files: Files, _: Files, rng: random.Random) -> Texts:
    """Some files lie there twice, were copied over another rank's, or hold events twice: of a stretch, or some."""
    names, how = _some(files, rng), rng.choice(("beside", "over", "events"))
    texts = _texts(files)
    if how == "events":
        return _changed(files, names, lambda events: _repeated(events, rng))
    for name in names:
        beside = [f"copy of {name}", name.replace(".", " (1).", 1), f"old/{name}"]
        texts[rng.choice(beside if how == "beside" else list(files))] = _text(files[name])
    return texts


def _repeated(events: list[Any], rng: random.Random) -> list[Any]:
    if rng.random() < 0.5:
        share = rng.uniform(0.01, 0.2)
        return [e for event in events for e in [event] * (1 + (_is_timed(event) and rng.random() < share))]
    begin, end = sorted(rng.randrange(len(events) + 1) for _ in range(2))
    return events[:end] + events[begin:]


def lost_launches(files: Files, _: Files, rng: random.Random) -> Texts:
    """Some files lack a share of their launches: the calls, what they launched, or both, as full buffers drop them."""
    share, gone = rng.uniform(0.005, 0.4), rng.choice(LAUNCHES_LOSE)

    def change(events: list[Any]) -> list[Any]:
        launched = {e.get("args", {}).get("correlation") for e in events if e.get("cat") in _ON_DEVICE} - {None}
        lost = {number for number in sorted(launched) if rng.random() < share}
        return [e for e in events if e.get("cat") not in gone or e.get("args", {}).get("correlation") not in lost]

    return _changed(files, _some(files, rng), change)


def reencoded(files: Files, _: Files, rng: random.Random) -> Texts:
    """Some files were written again by another tool: laid out, ordered or headed otherwise, times in whole us."""

    def write_again(document: dict[str, Any]) -> str:
        events = document["traceEvents"]
        if rng.random() < 0.3:
            events = [e | {k: round(float(e[k])) for k in ("ts", "dur") if k in e} for e in events]
        whole: Any = {**document, "traceEvents": events} if rng.random() < 0.7 else events
        layout = {"indent": rng.choice((None, 0, 1, 4)), "sort_keys": rng.random() < 0.5}
        return json.dumps(whole, separators=rng.choice((None, (",", ":"), (" , ", " : "))), **layout)

    names = list(files) if rng.random() < 0.5 else _some(files, rng)
    return _texts(files) | {name: write_again(files[name]) for name in names}


def _start(event: dict[str, Any]) -> float:
    return float(event.get("ts", 0.0)) if event.get("ph") != "M" else -1e30


def _ended(events: list[Any], rng: random.Random) -> list[Any]:
    first, last = _times(events)
    limit = first + rng.uniform(0.1, 0.95) * (last - first)
    return [e for e in events if not _is_timed(e) or float(e["ts"]) < limit]


def _in_some(change: Callable[[list[Any], random.Random], list[Any]]) -> Mutation:
    return lambda files, _, rng: _changed(files, _some(files, rng), lambda events: change(events, rng))


MUTATIONS: dict[str, Mutation] = {
    "cut": cut,
    "ended": _in_some(_ended),
    "holes": _with_holes(lambda e: True),
    "device_holes": _with_holes(lambda e: e.get("cat") in _ON_DEVICE),  # as when buffers run full
    "host_holes": _with_holes(lambda e: e.get("cat") not in _ON_DEVICE),
    **{mutation.__name__: mutation for mutation in (lost_launches, sampled, kth, shifted, mixed, both)},
    "shuffled": _in_some(lambda events, rng: rng.sample(events, len(events))),
    "device_clock": _in_some(lambda events, rng: _moved(events, rng, lambda e: e.get("cat") in _ON_DEVICE)),
    "clock": lambda files, _, rng: _changed(files, _some(files, rng, len(files) - 1), lambda e: _moved(e, rng)),
    **{mutation.__name__: mutation for mutation in (missing, torn, without_kind, duplicated, reencoded)},
}
