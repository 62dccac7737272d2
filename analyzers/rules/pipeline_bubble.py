"""The pipeline schedule's bubble is large.

What it detects: stages wait (p - 1) / (m v) of their work per step for the pipeline to fill and drain; a third of that
under schedules that split the backward pass (zero-bubble, DualPipeV). The job's own schedule is named, or the order of
its passes (GPipe, 1F1B, interleaved, zero-bubble).
Why it costs: the devices of all stages idle for that time in every step.
How the gain is priced: by formula, for microbatches doubled until doubling them once more would gain less than 3 % of
the step: the bubble is that share of the mean stage's work. Every further microbatch costs the launches and exposed
messages that one costs now: where that is more than it saves, the finding says so and gains nothing.
How to fix: more microbatches, interleaved stages, fewer stages.
Limits: the batch stays, so microbatches get smaller: memory does not grow, but kernels may become less efficient, and
there are no more microbatches than samples. More of the same size raise the batch.
Sources: Megatron-LM section 2.2: (p - 1) / m, interleaved (p - 1) / (m v). Zero Bubble Pipeline Parallelism, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.model import Pipeline
from ddprof.analyzers.job.pipelines.bubble import bubble_share, schedule_of
from ddprof.analyzers.replay.changes.pipeline_schedule import schedule_gain_us
from ddprof.analyzers.rules.evidence.spans import longest_stage_wait
from ddprof.analyzers.rules.evidence.stages import unknown_stages
from ddprof.finding_ids import PIPELINE_BUBBLE
from ddprof.findings import WARNING_SHARE, Abstention, Basis, Candidate, Evidence, Fix, Rule
from ddprof.units import format_count, format_share, format_us

MIN_SHARE = 0.05  # of the step


def best_microbatches(measures: Measures, pipeline: Pipeline) -> list[tuple[int, float]]:
    """Microbatches with their gain (us): doubled once if that helps, then while a warning's worth is gained."""
    counts: list[tuple[int, float]] = []
    most = _samples(measures)
    count, gained = 2 * pipeline.microbatches, 0.0
    while most is None or count <= most:
        gain = schedule_gain_us(measures, count, pipeline.interleave)
        if gain - gained < (WARNING_SHARE * measures.step_us if counts else 0.0):
            break
        counts.append((count, gain))
        count, gained = 2 * count, gain
    return counts


def _samples(measures: Measures) -> int | None:
    """Samples per batch as counted by capture, the upper limit of microbatches; None where unknown."""
    timed = [facts.sidecar.fetching for facts in measures.job.ranks if facts.sidecar.fetching is not None]
    return max((fetching.samples for fetching in timed if fetching.samples), default=None)


def _predicted(measures: Measures, pipeline: Pipeline, swept: Sequence[tuple[int, float]]) -> str:
    """The step with more microbatches, in words."""
    if swept:
        steps = ", ".join(f"{format_us(measures.step_us - us)} with {n} microbatches" for n, us in swept)
        return f"predicted step: {steps}; {2 * swept[-1][0]} would save less than 3 % more"
    twice, most = 2 * pipeline.microbatches, _samples(measures)
    if most is not None and twice > most:
        return f"more microbatches need more samples than the {most} of a batch"
    longer_us = measures.step_us - schedule_gain_us(measures, twice, pipeline.interleave)
    return f"predicted step: {format_us(longer_us)} with {twice} microbatches, as each costs launches and messages"


def _more_microbatches(pipeline: Pipeline, swept: Sequence[tuple[int, float]]) -> Iterator[Fix]:
    """The fix of the most microbatches that gain."""
    if swept:
        yield Fix(
            setting="microbatches",
            current=str(pipeline.microbatches),
            suggested=str(swept[-1][0]),
            patch=f"n_microbatches={swept[-1][0]}",
            why="the bubble is (stages - 1) / (microbatches x chunks) of the work",
            source="Megatron-LM section 2.2",
        )


def _more_chunks(measures: Measures, pipeline: Pipeline) -> Iterator[Fix]:
    """The fix of twice the chunks, where it gains; interleaved schedules need microbatches in multiples of the
    pipeline's depth.
    """
    chunks = 2 * pipeline.interleave
    gain_us = schedule_gain_us(measures, pipeline.microbatches, chunks)
    if gain_us <= 0 or pipeline.microbatches % len(pipeline.stages) or schedule_of(pipeline).is_v:
        return
    of_torch = pipeline.interleave > 1 and pipeline.schedule.startswith("Schedule")
    name = pipeline.schedule if of_torch else "ScheduleInterleaved1F1B"
    yield Fix(
        setting="chunks per stage",
        current=str(pipeline.interleave),
        suggested=str(chunks),
        patch=f"{name}(stages, n_microbatches={pipeline.microbatches})  # {chunks} stages per rank",
        why=f"predicted step: {format_us(measures.step_us - gain_us)}; each stage holds {chunks} groups of layers and "
        "sends more often",
        source="Megatron-LM section 2.2",
    )


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find a large unavoidable bubble."""
    pipeline = measures.job.pipeline
    if pipeline is None:
        yield from unknown_stages(RULE.id, measures)
        return
    if pipeline.unsure:
        yield Abstention(RULE.id, pipeline.unsure)
        return
    bubble = float(measures.cause_us("pipeline_bubble").mean())
    if bubble < MIN_SHARE * measures.step_us:
        return
    stages, count, words = len(pipeline.stages), pipeline.microbatches, schedule_of(pipeline).words
    named, of_batch = f"{words}: " if words else "", f"{count} microbatch{'es' * (count > 1)}"
    in_chunks = f" in {pipeline.interleave} chunks per stage" if pipeline.interleave > 1 else ""
    formula = format_share(bubble_share(pipeline, count, pipeline.interleave))
    swept = [(number, min(us, bubble)) for number, us in best_microbatches(measures, pipeline)]
    fixes = [*_more_microbatches(pipeline, swept), *_more_chunks(measures, pipeline)]
    yield Candidate(
        id=RULE.id,
        summary=f"{format_share(bubble / measures.step_us)} of each step is pipeline bubble: {stages} stages, "
        f"{of_batch}{in_chunks}{f', {words}' if words else ''}",
        lost_us=bubble,
        basis=Basis.RECORDED,
        evidence=(
            Evidence(
                f"{named}{stages} stages, {of_batch}, {format_count(pipeline.interleave, 'chunk')} per stage"
                f"; the bubble is {formula} of a stage's work by formula"
            ),
            Evidence(_predicted(measures, pipeline, swept)),
            *longest_stage_wait(measures),
        ),
        fixes=tuple(fixes),
        ceiling_us=swept[-1][1] if swept else 0.0,
        is_bound=True,
        band=0.2,
    )


RULE = Rule(
    PIPELINE_BUBBLE, "The pipeline bubble is large", detect, bound="pipeline", upper_bound=True, compares_ranks=True
)
