"""Facts of a CPU-only rank. (placeholder during bring-up)"""

from ddprof.model import RankTrace
from ddprof.tables import Table


def cpu_facts(trace: RankTrace, steps: Table, main: int) -> dict[str, Table]:
    raise NotImplementedError
