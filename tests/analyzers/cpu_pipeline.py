"""Traces of a 1F1B pipeline on CPU ranks over gloo, from a simulation that knows every instant: a message is there
`TRANSFER_US` after both sides have posted it, a range lasts until it was waited for."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from gloo_traces import Events, annotation, operator, write

TRANSFER_US, CALL_US, PYTHON_US, OPTIMIZER_US = 300.0, 40.0, 100.0, 500.0
Message = tuple[int, bool]  # peer, is it sent


@dataclass
class Work:
    """One posted message: the range opens with it and closes when it has been waited for."""

    key: tuple[int, int, int]  # from, to, number
    is_send: bool
    posted_us: float


@dataclass
class Stage:
    rank: int
    program: Generator[list[Work], None, None]
    now_us: float = 0.0
    events: Events = field(default_factory=list)
    waits: list[Work] = field(default_factory=list)
    forward_us: list[float] = field(default_factory=list)  # begin of the first forward pass of each step
    done: bool = False
    unsent: list[Work] = field(default_factory=list)


@dataclass
class Pipeline:
    """`work_us[s]`: forward and backward (half as long again each, 1 : 2) of one microbatch on stage s. `at_forward`: a
    stage's steps, and its recording, begin with its first forward pass, behind what that receives. `logs_us`: of which
    nothing is recorded, before each update of the last stage."""

    work_us: Sequence[float]
    microbatches: int
    steps: int = 4
    inputs: bool = True
    at_forward: bool = False
    logs_us: float = 0.0
    sends_last: bool = False

    def __post_init__(self) -> None:
        self._posted: dict[tuple[tuple[int, int, int], bool], float] = {}
        self._numbers: dict[tuple[int, int, bool], int] = {}
        self.stages = [Stage(rank, self._program(rank)) for rank in range(len(self.work_us))]
        while not all(stage.done for stage in self.stages):
            for stage in self.stages:
                self._advance(stage)

    @property
    def step_us(self) -> float:
        return sum(stage.now_us for stage in self.stages) / len(self.stages) / self.steps

    def write(self, folder: Path) -> Path:
        if self.at_forward:
            for stage in self.stages:
                self._mark_at_forward(stage)
        return write(folder, [stage.events for stage in self.stages])

    def _mark_at_forward(self, stage: Stage) -> None:
        marks = [*stage.forward_us, stage.now_us]
        kept = [e for e in stage.events if e["ts"] >= marks[0] and not e["name"].startswith("ProfilerStep")]
        steps = enumerate(pairwise(marks))
        stage.events = kept + [annotation(stage.rank, f"ProfilerStep#{at}", a, b - a) for at, (a, b) in steps]

    def _advance(self, stage: Stage) -> None:
        """Play until a message is waited for whose other side is not posted yet."""
        while not stage.done:
            both = [self._posted.get((w.key, not w.is_send)) for w in stage.waits]
            if None in both:
                return
            for work, other in zip(stage.waits, both, strict=True):
                stage.now_us = max(stage.now_us, work.posted_us + TRANSFER_US, (other or 0.0) + TRANSFER_US)
                name, opened = "gloo:send" if work.is_send else "gloo:recv", work.posted_us + 0.8 * CALL_US
                sizes = {"Input Dims": [[8, 64]], "Input type": ["float"]}
                stage.events.append(annotation(stage.rank, name, opened, stage.now_us - opened, **sizes))
            stage.waits = []
            stage.now_us += PYTHON_US
            try:
                stage.waits = next(stage.program)
            except StopIteration:
                stage.done = True

    def _program(self, rank: int) -> Generator[list[Work], None, None]:
        me, last = self.stages[rank], len(self.work_us) - 1
        receive, send_back = ([(rank - 1, is_sent)] if rank > 0 else [] for is_sent in (False, True))
        receive_back, send_on = ([(rank + 1, is_sent)] if rank < last else [] for is_sent in (False, True))
        for step in range(self.steps):
            began = me.now_us
            warm = min(self.microbatches, last + 1 - rank)
            sent: list[Work] = []
            for i in range(warm):
                yield self._post(me, receive)
                me.forward_us += [me.now_us] if i == 0 else []
                self._compute(me, rank, 1 / 3)
                yield sent
                sent = self._post(me, send_on) if i < warm - 1 else []
            forwards, backwards = warm, 0
            while True:
                yield self._post(me, send_on + receive_back)
                self._compute(me, rank, 2 / 3)
                backwards += 1
                if forwards == self.microbatches:
                    break
                yield self._post(me, send_back + receive)
                self._compute(me, rank, 1 / 3)
                forwards += 1
            yield self._post(me, send_back)
            while backwards < self.microbatches:
                yield self._post(me, receive_back)
                self._compute(me, rank, 2 / 3)
                yield self._post(me, send_back)
                backwards += 1
            yield me.unsent[:]
            me.unsent.clear()
            me.now_us += self.logs_us if rank == last else 0.0
            self._operator(me, "Optimizer.step#AdamW.step", OPTIMIZER_US)
            me.events.append(annotation(rank, f"ProfilerStep#{step}", began, me.now_us - began))

    def _compute(self, stage: Stage, rank: int, share: float) -> None:
        name = "aten::mm" if share < 1 / 2 else "autograd::engine::evaluate_function: MmBackward0"
        self._operator(stage, name, self.work_us[rank] * share)

    def _operator(self, stage: Stage, name: str, dur_us: float) -> None:
        stage.events.append(operator(stage.rank, name, stage.now_us, dur_us))
        stage.now_us += dur_us

    def _post(self, stage: Stage, messages: Sequence[Message]) -> list[Work]:
        works = []
        for peer, is_send in messages:
            src, dst = (stage.rank, peer) if is_send else (peer, stage.rank)
            number = self._numbers.get((src, dst, is_send), 0)
            self._numbers[src, dst, is_send] = number + 1
            work = Work((src, dst, number), is_send, stage.now_us)
            self._posted[work.key, is_send] = stage.now_us
            given = {"Input Dims": [[[8, 64]], [], [], []], "Input type": ["TensorList", "", "Scalar", "Scalar"]}
            if self.inputs:
                given["Concrete Inputs"] = ["", "", str(peer), "0"]
            name = "c10d::send" if is_send else "c10d::recv_"
            stage.events.append(operator(stage.rank, name, stage.now_us, CALL_US, **given))
            stage.now_us += CALL_US
            works.append(work)
        later = [work for work in works if work.is_send and self.sends_last]
        stage.unsent += later
        return [work for work in works if work not in later]
