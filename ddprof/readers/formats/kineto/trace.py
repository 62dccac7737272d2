"""PyTorch profiler (Kineto) JSON to a RankTrace: streamed, in memory bounded by the block, exact to the nanosecond."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from msgspec.structs import replace

from ddprof.errors import NoUsableInput
from ddprof.model import DEVICE_KINDS, Device, HealthNote, Identity, Kind, RankTrace
from ddprof.readers.columns.assemble import (
    assemble,
    calls_device,
    is_unix_time,
    lengthless_note,
    missing_device_note,
    overlap_note,
    runs_on_device,
)
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.columns.kinds import DEVICE_FLOWS
from ddprof.readers.files.names import host_in_name, rank_in_name
from ddprof.readers.files.streams import open_blocks
from ddprof.readers.formats.kineto.header import Header, parse_header
from ddprof.readers.formats.kineto.merged import of_rank, rank_in
from ddprof.readers.json_text.scanned import Block, Decoder
from ddprof.readers.json_text.stream import EventStream
from ddprof.readers.json_text.trace_event import Event
from ddprof.readers.numbers import InexactFloats, one_int
from ddprof.readers.script.sampled import MIN_PER_STEP, is_coarse, with_samples, worker_lines
from ddprof.readers.script.stacks import Script
from ddprof.readers.side_files.lenient import read_flight_recorder, read_sidecar
from ddprof.readers.side_files.manifests import read_hardware
from ddprof.readers.side_files.stacks import read_stacks, side_files
from ddprof.readers.side_files.workers import IN_PROCESS, read_fetches, summary
from ddprof.readers.source import Source
from ddprof.sidecar import Sidecar, WorkerLine
from ddprof.tables import NULL, Array, Table, of_kinds

Events: TypeAlias = EventStream[Block | list[Event | None], Event | None]
_SPAN_NAME = "DataLoader worker: fetch"


def read_kineto(source: Source) -> RankTrace:
    """Read one file. Raises NoUsableInput, in one line, where there is no event list; damage becomes health notes."""
    columns = EventColumns()
    part = source.part or ""
    decoder = Decoder(None if part else columns.scanner())
    with open_blocks(source.path, source.member) as blocks:
        stream: Events = EventStream(iter(blocks), decoder.decode, decoder.salvage)
        try:
            _fill(columns, stream, decoder, part)
        except NoUsableInput as error:
            raise NoUsableInput(f"{source.label}: {error}") from error
        stream.damage.packing = blocks.damage
    values, whole = parse_header(stream.header, stream.footer)
    health = stream.damage.notes(source.label)
    if not whole and not stream.damage.truncated:
        issue = f"{source.label}: the values around the event list are damaged"
        health.append(HealthNote(issue, "identity and clock base may be missing"))
    return _trace(source, columns, Header(values), health)


def _fill(columns: EventColumns, stream: Events, decoder: Decoder, part: str) -> None:
    for events in stream:
        try:
            columns.add(_of(part, events))
        except InexactFloats:
            columns.add(_of(part, decoder.redecode()))


def _of(part: str, events: Block | list[Event | None]) -> Block | list[Event | None]:
    return events if isinstance(events, Block) or not part else of_rank(events, part)


def _trace(source: Source, columns: EventColumns, header: Header, health: list[HealthNote]) -> RankTrace:
    base_ns = header.base_time_ns
    sidecar, sidecar_notes = read_sidecar(source.sidecar_path)
    fetch_files, stack_files = side_files(source.sidecar_path)
    if sidecar.is_captured:
        sidecar, fetch_notes = _with_companions(sidecar, source, fetch_files, columns, base_ns)
        sidecar_notes = [*sidecar_notes, *fetch_notes]
    built = assemble(columns, base_ns or 0, source.label)
    events, tracks = built.tables["events"], built.tables["tracks"]
    if sidecar.is_captured:
        lines, sample_notes = _add_samples(built.tables, source, stack_files, sidecar)
        if sidecar.fetching is not None:
            sidecar = replace(sidecar, fetching=replace(sidecar.fetching, lines=lines))
        sidecar_notes = [*sidecar_notes, *sample_notes]
    columns.arguments.groups.add_config(header.distributed.get("pg_config"), header.backend or "")
    recorder, recorder_notes = read_flight_recorder(source.flight_recorder_path)
    on_device = of_kinds(events["kind"], DEVICE_KINDS)
    device_index = _most_common(tracks["device"][events["track"][on_device]]) if on_device.any() else None
    identity = _identity(source, header, sidecar, columns, device_index, _most_common_pid(events, tracks))
    notes = [*health, *built.health, *overlap_note(events, source.label), *sidecar_notes, *recorder_notes]
    works = calls_device(events, built.strings)
    # Calls that only ask begin arrows, too.
    asks = not works and bool((events["kind"] == Kind.RUNTIME).any())
    arrows = sum(columns.categories[flow] for flow in DEVICE_FLOWS)
    notes += lengthless_note(events, source.label)
    is_of_host = asks and bool((events["kind"] == Kind.CPU_OP).any())
    has_device = device_index is not None or (arrows > 0 and not is_of_host)
    has_device |= bool(on_device.any()) or works
    unrecorded = not has_device and runs_on_device(events, built.strings, header.backend)
    notes += missing_device_note(events, built.strings, 0 if asks else arrows, source.label, unrecorded)
    if header.stopped_early:
        effect = "the end of the device timeline is missing"
        notes.append(HealthNote(f"{source.label}: the device tracer ran out of buffers", effect))
    if header.unbelievable:
        issue = f"{source.label}: the header has impossible values for {' and '.join(header.unbelievable)}"
        notes.append(HealthNote(issue, "ignored"))
    if not len(events):
        others = sum(columns.unknown_categories.values())
        what = f"none of its {others} events is of a kind that PyTorch's profiler writes" if others else "no events"
        notes.append(HealthNote(f"{source.label}: {what}", "this rank cannot be analyzed", "error"))
    # Operators are written first: of a file that lacks events, those of the device that its header states may be it.
    has_device |= any(note.severity == "error" for note in health)
    return RankTrace(
        identity=identity,
        device=header.device(device_index) if has_device else Device("cuda" if unrecorded else "cpu"),
        path=source.label,
        format="kineto",
        has_base_time=base_ns is not None or is_unix_time(events),
        strings=built.strings,
        process_groups=tuple(columns.arguments.groups.groups),
        sidecar=sidecar,
        flight_recorder=recorder,
        top={**header.kept(), "categories": dict(columns.categories)},
        health=tuple(notes),
        **built.tables,
    )


def _with_companions(
    sidecar: Sidecar, source: Source, fetch_files: list[str], columns: EventColumns, base_ns: int | None
) -> tuple[Sidecar, list[HealthNote]]:
    """The sidecar with its machine and the costs of its loader's fetches, whose spans become tracks of the trace."""
    fetches, notes = read_fetches(fetch_files, sidecar)
    if base_ns is not None:
        _add_lanes(columns, fetches, base_ns)
    hardware = read_hardware(source.manifest_paths, sidecar)
    return replace(sidecar, fetching=summary(fetches), hardware=hardware), notes


def _add_samples(
    tables: dict[str, Table], source: Source, stack_files: list[str], sidecar: Sidecar
) -> tuple[tuple[WorkerLine, ...], list[HealthNote]]:
    """Add the sampled stacks of the rank and of its workers to the trace's frames. Returns the workers' lines."""
    processes, notes = read_stacks(stack_files)
    spans = [step.span_ns for step in sidecar.steps if step.profiled]
    lengths = [span[1] - span[0] for span in spans if span is not None]
    step_ns = int(np.median(lengths)) if lengths else None
    if any(is_coarse(process, step_ns) for process in processes if process.worker is None):
        issue = f"{source.label}: stacks were sampled fewer than {MIN_PER_STEP} times per step to keep their cost low"
        notes.append(HealthNote(issue, "lines of the script have no times", "info"))
    traced = Script(tables["script_spans"], tables["script_stacks"], tables["script_frames"])
    script = with_samples(traced, processes, tables["tracks"], step_ns)
    tables.update({f"script_{what}": table for what, table in script._asdict().items()})
    start_ns, end_ns = script.spans.bounds
    at_ns = tables["events"]["ts_ns"]
    inside = (end_ns > at_ns.min()) & (start_ns < at_ns.max()) if len(at_ns) else np.zeros(len(start_ns), bool)
    tables["script_spans"] = script.spans.take(inside)  # the run may have several windows, each with a trace
    return worker_lines(processes), notes


def _identity(
    source: Source, header: Header, sidecar: Sidecar, columns: EventColumns, device_index: int | None, pid: int | None
) -> Identity:
    rank, how = header.rank, "distributedInfo"
    if source.part:
        rank, how = rank_in(source.part), "content"
    if rank is None and sidecar.rank is not None:
        rank, how = sidecar.rank, "sidecar"
    if rank is None:
        rank, how = rank_in_name(source.member or source.path), "file name"
    world_size = header.world_size
    if rank is None:
        rank, how = _rank_in_arguments(columns, world_size), "content"
    return Identity(
        rank=rank,
        source=how if rank is not None else "order",
        world_size=world_size or sidecar.world_size,
        host=header.host or sidecar.host or host_in_name(source.member or source.path, pid),
        pid=pid,
        backend=header.backend,
        local_device=device_index,
    )


def _rank_in_arguments(columns: EventColumns, world_size: int | None) -> int | None:
    """The "Rank" that the collectives of the largest group state, if they agree.

    Within that group it is the global rank.
    """
    seen = columns.arguments.ranks_seen
    largest = max((size for _, size in seen), default=0)
    ranks = {rank for rank, size in seen if size == largest}
    whole = world_size is None or largest == world_size
    return ranks.pop() if len(ranks) == 1 and whole and largest > 1 else None


def _most_common_pid(events: Table, tracks: Table) -> int | None:
    rows = of_kinds(events["kind"], (Kind.CPU_OP, Kind.RUNTIME, Kind.ANNOTATION))
    if not rows.any():
        return None
    track = _most_common(events["track"][rows].astype(np.int64))
    text = str(tracks["pid"][track])
    number = one_int(text) if text.isdecimal() else NULL
    return number if number != NULL else None


def _most_common(values: Any) -> int | None:
    values = values[values != NULL]
    if not len(values):
        return None
    unique, counts = np.unique(values, return_counts=True)
    return int(unique[np.argmax(counts)])


def _add_lanes(columns: EventColumns, fetches: Array, base_time_ns: int) -> None:
    """Append each fetch within the trace as a span on its worker's track (`Kind.OTHER`: in no step)."""
    of_workers = fetches[fetches[:, 0] != IN_PROCESS]
    first, last = _span_of(columns)
    at = of_workers[:, 1] - base_time_ns
    keep = (at <= last) & (at + of_workers[:, 2] >= first)
    of_workers, at = of_workers[keep], at[keep]
    if not len(of_workers):
        return
    tracks: list[tuple[Any, Any]] = [("DataLoader", f"worker {worker}") for worker in of_workers[:, 0].tolist()]
    for track in tracks:
        columns.thread_names[track] = f"DataLoader {track[1]}"
    columns.append(Kind.OTHER, [_SPAN_NAME] * len(of_workers), tracks, at, of_workers[:, 2])


def _span_of(columns: EventColumns) -> tuple[int, int]:
    """First start and last end of the trace's events, on its own base."""
    spans = [(ts_ns, ts_ns + dur_ns) for _, _, _, ts_ns, dur_ns, *_ in columns.blocks if len(ts_ns)]
    return min((int(start.min()) for start, _ in spans), default=0), max((int(e.max()) for _, e in spans), default=-1)
