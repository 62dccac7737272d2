"""What every rank's own timers say of its steps, from a run's manifests: all there is of ranks without a trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ddprof.readers.companions.files import read_manifest


def read_step_times(manifests: Iterable[str]) -> Mapping[int, Mapping[str, int]]:
    """rank -> `{step_ns, data_ns, forward_ns, backward_ns, optimizer_ns, collective_ns, rest_ns}`, medians of steps
    outside windows. {} where no manifest has them."""
    found: dict[int, dict[str, int]] = {}
    for path in manifests:
        given = read_manifest(path).get("step_times")
        for rank, times in given.items() if isinstance(given, dict) else ():
            if rank.isdigit() and isinstance(times, dict):
                plain = {k: v for k, v in times.items() if isinstance(v, int) and not isinstance(v, bool)}
                if plain.get("step_ns"):
                    found[int(rank)] = plain
    return found
