"""A labelled run and every stage of its analysis, and what one rule says of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.spec import Scenario
from benchmarks.oracle.write import write
from benchmarks.scoring.score import RunScore, compare
from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.engine import LoadedRun, Options, load_runs
from ddprof.analyzers.facts.extract import rank_facts
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.replay.price import Pricer
from ddprof.findings import Abstention, Candidate
from ddprof.model import RankTrace
from ddprof.readers import discover, read
from ddprof.report.model import Report

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"


@dataclass(frozen=True)
class Labelled:
    """A run with its truth, and every stage of its analysis, each computed when first asked for."""

    name: str
    label: dict[str, Any]
    traces: Path

    @cached_property
    def job(self) -> JobFacts:
        """Facts of all ranks."""
        return job_facts([rank_facts(trace) for trace in self.recorded()])

    def recorded(self) -> Iterator[RankTrace]:
        """The trace of each rank, read when it is asked for."""
        ((_, sources),) = discover([str(self.traces)]).runs
        return map(read, sources)

    @property
    def fault(self) -> Any:
        """First fault of the label."""
        return self.label["faults"][0]

    @cached_property
    def run(self) -> LoadedRun:
        """The run as the engine holds it."""
        return LoadedRun(self.name, self.job, ())

    @property
    def measures(self) -> Measures:
        return self.run.measures

    @property
    def pricer(self) -> Pricer:
        return self.run.pricer

    @property
    def report(self) -> Report:
        return self.run.report

    @cached_property
    def score(self) -> RunScore:
        """The report against the truth."""
        return compare(self.name, self.label, self.report)

    def only(self, *positions: int) -> Measures:
        """The run as if only the ranks at these positions had been traced."""
        return run_of([self.job.ranks[p] for p in positions]).measures

    def said(self, rule_id: str) -> list[Candidate | Abstention]:
        """Results of one rule on the run."""
        return list(catalogue()[rule_id].detect(self.measures))


Runs = Callable[[str], Labelled]


def abstains(rule_id: str, measures: Measures) -> str:
    """The reason a rule gives for not judging; fails where it judges."""
    (only,) = catalogue()[rule_id].detect(measures)
    assert isinstance(only, Abstention), only
    assert only.id == rule_id
    return only.reason


def candidates(rule_id: str, measures: Measures) -> list[Candidate]:
    return [said for said in catalogue()[rule_id].detect(measures) if isinstance(said, Candidate)]


def candidate(rule_id: str, measures: Measures) -> Candidate:
    """The one candidate of a rule on these measures."""
    (only,) = catalogue()[rule_id].detect(measures)
    assert isinstance(only, Candidate), only
    return only


def fires(run: Labelled, rule_id: str, *ranks: int) -> Candidate:
    """The one candidate of a rule on a run, which names these ranks: none, the whole job."""
    only = candidate(rule_id, run.measures)
    assert only.evidence and only.fixes and only.ranks == ranks
    return only


def serious(report: Report) -> dict[str, tuple[int, ...]]:
    """Ranks of each finding above "info"."""
    return {f.id: f.ranks for f in report.findings if report.severity_of(f) != "info"}


def latest(measures: Measures) -> int:
    """Position of the rank that the others wait for longest."""
    return int(measures.late_us.argmax())


def only_run(path: Path) -> LoadedRun:
    (run,) = load_runs([path], Options(workers=1, cache=False))
    return run


def drawn(scenario: Scenario, folder: Path) -> Labelled:
    """The run that the trace generator draws of a scenario, in `folder`."""
    return Labelled(scenario.name, write(simulate(scenario), folder), folder / "traces")


@cache
def sample_run(name: str) -> LoadedRun:
    return only_run(SAMPLES / name)


def run_of(ranks: Sequence[RankFacts]) -> LoadedRun:
    return LoadedRun("made", job_facts(ranks), ())


def on_every_rank(measures: Measures, **changes: Any) -> Measures:
    """The measures with these fields in the facts of every rank."""
    ranks = tuple(replace(facts, **changes) for facts in measures.job.ranks)
    return replace(measures, job=replace(measures.job, ranks=ranks))
