"""The critical path and the kernel table of a run that is open, worked out once, when first asked for."""

from __future__ import annotations

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.kernel_table.build import build_kernel_table
from ddprof.analyzers.kernel_table.model import KernelTable
from ddprof.analyzers.replay.critical import critical_path
from ddprof.errors import NoUsableInput
from ddprof.model import RankTrace
from ddprof.readers import read
from ddprof.remembered import remembered
from ddprof.tables import Table


@remembered
def path_of(run: LoadedRun) -> Table:
    """CRITICAL of the run."""
    return critical_path(run.job, run.pricer.graph)


@remembered
def kernels_of(run: LoadedRun) -> KernelTable:
    """KERNELS of the run. Raises NoUsableInput where the trace of a CPU rank, which is read again, is gone."""

    def read_again(path: str) -> RankTrace:
        try:
            return read(run.sources[path])
        except OSError as error:
            raise NoUsableInput(f"{path}: cannot be read again: {error.strerror}") from error

    return build_kernel_table(run.job, path_of(run), read_again)
