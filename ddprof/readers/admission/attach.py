"""Companions of each trace: sidecar, manifests and flight-recorder dump."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

from ddprof.model import HealthNote
from ddprof.readers.files.names import file_name, process_in_name, rank_in_name
from ddprof.readers.side_files.manifests import manifests_of
from ddprof.readers.source import Source, common_length

_CAPTURED = ("kineto", "tensorflow")  # formats that capture writes, with companions


def attach(sources: list[Source]) -> tuple[list[Source], list[HealthNote]]:
    """Traces with their companion files attached, and the companions left over.

    A flight-recorder dump beside no trace of its folder is a source of its own. Where a folder holds the same dump as
    JSON and as pickle, one is used.
    """
    traces = [s for s in sources if s.format not in ("flight_recorder", "run_file")]
    dumps = [s for s in sources if s.format == "flight_recorder"]
    ours = [s for s in sources if s.format == "run_file"]
    sidecars = [s for s in ours if "sidecar" in file_name(s.path)]
    folders = {_folder(s) for s in traces if s.format == "kineto"}
    manifests: dict[str, list[str]] = {}
    for file in ours:
        if file_name(file.path).startswith("manifest."):
            manifests.setdefault(_folder(file), []).append(file.path)

    def with_manifests(source: Source) -> Source:
        beside = [] if source.member is not None else manifests.get(_folder(source), [])
        return replace(source, manifest_paths=manifests_of(source.path, beside)) if beside else source

    attached = [
        replace(
            with_manifests(trace),
            flight_recorder_path=_companion(trace, dumps),
            sidecar_path=_companion(trace, sidecars),
        )
        if trace.member is None and trace.format in _CAPTURED
        else trace
        for trace in traces
    ]
    used = {s.flight_recorder_path for s in attached}
    alone = list(map(with_manifests, _one_per_rank([d for d in dumps if _folder(d) not in folders])))
    processes = {(_folder(t), process_in_name(t.path)) for t in traces if t.member is None and process_in_name(t.path)}
    notes = [
        HealthNote(f"{d.label}: a flight-recorder dump that belongs to no trace", "not used", "info", where=d.path)
        for d in dumps
        if _folder(d) in folders
        and d.path not in used
        # What a traced process of a run folder left at its end is evidence of its failure, read there.
        and (_folder(d), process_in_name(d.path)) not in processes
    ]
    effect = "not used: unpack the archive to add settings, step timers and machines"
    for path, count in Counter(file.path for file in ours if file.member is not None).items():
        issue = f"{path}: {count} files of ddprof beside the traces, inside an archive"
        notes.append(HealthNote(issue, effect, where=path))
    return attached + alone, notes


def _folder(source: Source) -> str:
    """The folder of a file; for a member its folder inside the archive, so that archives stay separate."""
    return os.path.dirname(source.path if source.member is None else os.path.join(source.path, source.member))


def _companion(trace: Source, candidates: list[Source]) -> str | None:
    """The candidate in the same folder with the longest common prefix, of the same rank and, where both names state
    one, the same process, as a folder may hold two runs; None without one.
    """
    rank, name = rank_in_name(trace.path), file_name(trace.path)
    near = [c for c in candidates if _folder(c) == _folder(trace) and rank is not None and rank_in_name(c.path) == rank]
    process = process_in_name(trace.path)
    near = [c for c in near if process is None or process_in_name(c.path) in (process, None)]
    if not near:
        return None
    return max(near, key=lambda c: (common_length(name, file_name(c.path)), c.path)).path


def _one_per_rank(dumps: list[Source]) -> list[Source]:
    kept: dict[tuple[str, object], Source] = {}
    for dump in dumps:
        rank = rank_in_name(dump.member or dump.path)
        kept.setdefault((_folder(dump), dump.label if rank is None else rank), dump)
    return list(kept.values())
