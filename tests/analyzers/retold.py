"""One run in other trace files: changes to them that change nothing of what happened, or lose a part of it."""

import gzip
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from labelled_runs import Labelled

Events = list[dict[str, Any]]
Change = Callable[[Sequence[Events]], None]
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")


def read_events(file: Path) -> tuple[dict[str, Any], Events]:
    """A trace file: its whole document, and its event list (the same object)."""
    packed = file.read_bytes()
    document = json.loads(gzip.decompress(packed) if file.suffix == ".gz" else packed)
    return document, document["traceEvents"]


def retell(source: Path, target: Path, *changes: Change) -> Path:
    """Copies of all trace files of `source` with the changes made to the event lists, in order of their names."""
    files = sorted(file for file in source.iterdir() if ".json" in file.suffixes)
    documents = [read_events(file) for file in files]
    for change in changes:
        change([events for _, events in documents])
    target.mkdir(parents=True)
    for file, (document, _) in zip(files, documents, strict=True):
        (target / file.name.removesuffix(".gz")).write_text(json.dumps(document))
    return target


def told(run: Labelled, folder: Path, *changes: Change) -> Labelled:
    """A labelled run in other trace files, which lie in `folder`."""
    return Labelled(run.name, run.label, retell(run.traces, folder / "traces", *changes))


def each(change: Callable[[Events], None]) -> Change:
    """Edit of the files of all ranks alike."""

    def all_of(ranks: Sequence[Events]) -> None:
        for events in ranks:
            change(events)

    return all_of


def records_lost(ranks: Sequence[Events]) -> None:
    """One in thirty of the records that the tracing of a device keeps is dropped: a launch, or its kernel."""
    for seed, events in enumerate(ranks):
        lose = random.Random(seed)
        events[:] = [e for e in events if "correlation" not in e.get("args", {}) or lose.random() > 1 / 30]


def shuffled(ranks: Sequence[Events]) -> None:
    """Events in any order: names are then numbered differently on every rank."""
    for seed, events in enumerate(ranks):
        random.Random(seed).shuffle(events)


def scaled(factor: float) -> Change:
    """A machine that is `1 / factor` times as fast in everything."""

    def change(ranks: Sequence[Events]) -> None:
        origin = min(float(e["ts"]) for events in ranks for e in events if "dur" in e)
        for event in (e for events in ranks for e in events if "ts" in e):
            event["ts"] = round(origin + (float(event["ts"]) - origin) * factor, 3)
            if "dur" in event:
                event["dur"] = round(float(event["dur"]) * factor, 3)

    return change


def in_text(ranks: Sequence[Events]) -> None:
    for event in (e for events in ranks for e in events if "dur" in e):
        event["ts"], event["dur"] = str(event["ts"]), str(event["dur"])


def without_sequences(ranks: Sequence[Events]) -> None:
    for event in (e for events in ranks for e in events if "dur" in e):
        event.get("args", {}).pop("Seq", None)


def counted_per_process(ranks: Sequence[Events]) -> None:
    """Sequence numbers as nccl2 gives them: of all groups of a process together, two for each call (pytorch#192114),
    from what each process has called before."""
    for rank, events in enumerate(ranks):
        numbered = [e for e in events if "Seq" in e.get("args", {})]
        calls = sorted(numbered, key=lambda e: (float(e["ts"]), str(e.get("cat"))))
        renamed: dict[tuple[Any, Any], int] = {}
        for event in calls:
            key = event["args"].get("Process Group Name"), event["args"]["Seq"]
            event["args"]["Seq"] = renamed.setdefault(key, 2 * (len(renamed) + 3 * rank))


def older_names(ranks: Sequence[Events]) -> None:
    """Every communication kernel under the one name that RCCL gives them all."""
    for event in (e for events in ranks for e in events if e.get("cat") == "kernel"):
        if event["name"].startswith("nccl"):
            event["name"] = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"


def _without_metadata(ranks: Sequence[Events], prefix: str) -> None:
    """Kernels and operators that do not state what is communicated in which group; ranges by `prefix`."""
    for event in (e for events in ranks for e in events if "dur" in e):
        args = event.get("args", {})
        said = f"{args.get('Collective name')} {event['name']}"
        if said.startswith(("send", "recv", "None nccl:send", "None nccl:recv")):
            continue  # sends and receives in a batch state each for itself (pytorch#194693)
        if event["name"] == "record_param_comms" or event.get("cat") in DEVICE:
            kept = "External id", "correlation", "device", "stream", "bytes"
            event["args"] = {name: args[name] for name in kept if name in args}
        if event["name"].startswith("nccl:"):
            event["name"] = prefix if prefix.endswith("coalesced") else prefix + event["name"].removeprefix("nccl:")


def coalesced(ranks: Sequence[Events]) -> None:
    """Collectives that a coalescing manager groups: their range says nothing but that."""
    _without_metadata(ranks, "nccl:coalesced")


def on_intel(ranks: Sequence[Events]) -> None:
    """Names of oneCCL and SYCL's unified runtime, and kernels without metadata (intel/torch-xpu-ops#5384)."""
    calls = {"cudaLaunchKernel": "urEnqueueKernelLaunch", "cudaLaunchKernelExC": "urEnqueueKernelLaunch"}
    calls |= {"cudaMemcpyAsync": "urEnqueueUSMMemcpy", "cudaMalloc": "urUSMDeviceAlloc", "cudaFree": "urUSMFree"}
    calls |= {"cudaDeviceSynchronize": "urQueueFinish", "cudaStreamSynchronize": "urQueueFinish"}
    _without_metadata(ranks, "xccl:")
    for event in (e for events in ranks for e in events if "dur" in e):
        if event.get("cat") == "cuda_runtime":
            event["cat"], event["name"] = "xpu_runtime", calls.get(event["name"], event["name"])
        elif event.get("cat") in DEVICE:
            event["args"]["sycl queue"] = event["args"].pop("stream", None)
            if event["name"].startswith("nccl") and "AllReduce" in event["name"]:
                event["name"] = "oneccl_reduce_base<float, 2, 16, 1, 1, 2>"


def marks_of(events: Events) -> Events:
    """The marks of steps, in order."""
    return sorted((e for e in events if is_mark(e)), key=lambda e: float(e["ts"]))


def device_ends_early(share: float, count: int | None = None) -> Change:
    """No device events after `share` of the recorded steps, on the first `count` ranks (None: on all)."""

    def change(ranks: Sequence[Events]) -> None:
        for events in ranks[:count]:
            marks = marks_of(events)
            begin, end = float(marks[0]["ts"]), float(marks[-1]["ts"]) + float(marks[-1]["dur"])
            limit = begin + (end - begin) * share
            events[:] = [e for e in events if e.get("cat") not in DEVICE or float(e["ts"]) < limit]

    return change


@each
def without_calls(events: Events) -> None:
    """No runtime calls: neither launches nor what the host waited for."""
    events[:] = [e for e in events if e.get("cat") not in ("cuda_runtime", "cuda_driver", "cuda_sync", "ac2g")]


def last_step_lost(ranks: Sequence[Events]) -> None:
    """The first rank recorded one step less than its peers."""
    limit = float(marks_of(ranks[0])[-1]["ts"])
    ranks[0][:] = [e for e in ranks[0] if "dur" not in e or float(e["ts"]) < limit]


def windows(*held: Sequence[int]) -> Change:
    """Every rank recorded these steps alone, by their positions; ranks beyond those given what the last one did."""

    def change(ranks: Sequence[Events]) -> None:
        for rank, events in enumerate(ranks):
            chosen = [marks_of(events)[step] for step in held[min(rank, len(held) - 1)]]
            spans = [(float(mark["ts"]), float(mark["ts"]) + float(mark["dur"])) for mark in chosen]
            events[:] = [e for e in events if "dur" not in e or any(a <= float(e["ts"]) < b for a, b in spans)]

    return change


def is_mark(event: dict[str, Any]) -> bool:
    return event.get("cat") == "user_annotation" and str(event.get("name", "")).startswith("ProfilerStep")


def held_up(step: int, length_us: float, where: str) -> Change:
    """The hosts of all ranks stand still in a step, by its position, -1 for the last: what is under way then takes
    `length_us` longer, what comes later comes later.

    `where`: "launch" (inside the step's first launch), "open" (before its first work), "close" (after its last work),
    or the name of a call, which is recorded before the step's first work and takes that time."""

    def change(ranks: Sequence[Events]) -> None:
        for events in ranks:
            mark = marks_of(events)[step]
            begin, end = float(mark["ts"]), float(mark["ts"]) + float(mark["dur"])
            launch = min(
                (e for e in events if e.get("name") == "cudaLaunchKernel" and begin <= float(e["ts"]) < end),
                key=lambda e: float(e["ts"]),
            )
            launched = float(launch["ts"])
            for copy in (e for e in events if e.get("cat") == "gpu_memcpy"):
                before = launched - float(copy["ts"])
                if 0 < before < float(copy["dur"]):  # of the batch: nothing may run while the host stands
                    copy["dur"] = round(before, 3)
            at = {"launch": launched + float(launch["dur"]) / 2, "close": end - 0.01}.get(where, begin + 0.01)
            for event in (e for e in events if "ts" in e):
                first = float(event["ts"])
                last = first + float(event.get("dur", 0))
                event["ts"] = round(first + length_us * (first > at), 3)
                if "dur" in event:
                    event["dur"] = round(last + length_us * (last > at) - event["ts"], 3)
            if where not in ("launch", "open", "close"):
                events.append({**launch, "name": where, "ts": at + 0.01, "dur": length_us - 0.02, "args": {}})

    return change
