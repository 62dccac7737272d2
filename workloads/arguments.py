"""The command line that every workload has, and which fault is on for which rank."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from ddprof.workloads.catalogue import NO_FAULT, SLOW, Workload

Extend = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True)
class Switches:
    """The fault of this run as one rank sees it. `fix` is "" where nothing is fixed."""

    fault: str
    fix: str
    delay_s: float
    rank: int
    fault_rank: int

    def on(self, fault: str, *, until: str = "") -> bool:
        """Is the fault injected? `until` names the fix that ends the injection itself."""
        return self.fault == fault and not (until and self.fix == until)

    def here(self, fault: str, *, until: str = "") -> bool:
        """Is it injected, and is this the culprit?"""
        return self.on(fault, until=until) and self.rank == self.fault_rank

    def fixed_by(self, fix: str) -> bool:
        """Is this fix applied?"""
        return self.fix == fix


def parse(workload: Workload, description: str, extend: Extend | None = None) -> argparse.Namespace:
    """The command line of a workload; `extend` adds its own options."""
    parser = argparse.ArgumentParser(
        description=description + _fault_lines(workload), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    fixes = sorted({fix for fault in workload.faults.values() for fix in fault.fixes})
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument(
        "--workers", type=int, help="DataLoader workers per rank (default: none, but for faults of them)"
    )
    parser.add_argument("--fault", choices=(NO_FAULT, *workload.faults), default=NO_FAULT)
    parser.add_argument("--fix", choices=fixes, default="", help="take the fault away, all sizes as with the fault")
    parser.add_argument("--fault-rank", type=int, help="the culprit (default: the last rank)")
    parser.add_argument("--fault-ms", type=float, help="size of the fault per step in milliseconds")
    parser.add_argument("--backend", choices=("auto", "gloo", "nccl"), default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads per rank, so that ranks do not fight")
    parser.add_argument("--laps", help="rank 0 writes start and end of every step here as it goes, in nanoseconds")
    parser.add_argument("--losses", help="rank 0 writes the losses here, one per line, in hexadecimal")
    if extend is not None:
        extend(parser)
    options = parser.parse_args()
    fault = workload.faults.get(options.fault)
    if options.fix and (fault is None or options.fix not in fault.fixes):
        known = ", ".join(fault.fixes) if fault else "nothing to fix"
        parser.error(f"--fix {options.fix} does not remove --fault {options.fault} ({known})")
    if options.fault_ms is None:
        options.fault_ms = fault.ms if fault else 0.0
    return options


def switches(options: argparse.Namespace, rank: int, world_size: int) -> Switches:
    """The fault of the run, seen from a rank."""
    culprit = world_size - 1 if options.fault_rank is None else options.fault_rank
    return Switches(options.fault, options.fix, options.fault_ms / 1e3, rank, culprit)


def _fault_lines(workload: Workload) -> str:
    """The faults, what must be found, and the fixes, as a table for --help."""
    lines = ["", "", "fault              finding, culprit                      --fix"]
    for name, fault in workload.faults.items():
        who = "[--fault-rank]" if fault.culprit == SLOW else f"{list(fault.ranks(0))}"
        only = f" (only on {fault.needs})" if fault.needs else ""
        lines.append(f"  {name:<16} {fault.finding + ', ' + who + only:<37} {', '.join(fault.fixes)}")
    return "\n".join(lines)
