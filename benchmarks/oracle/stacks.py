"""Optional records of the profiler: Python frames (`with_stack`) and memory events (`profile_memory`)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from benchmarks.oracle.header import device_properties
from benchmarks.oracle.rows import TEXT, Row

if TYPE_CHECKING:
    from benchmarks.oracle.kineto import TraceWriter

FRAMES = {
    "DistributedDataParallel.forward": "torch/nn/parallel/distributed.py(1633): forward",
    "FullyShardedDataParallel.forward": "torch/distributed/fsdp/fully_sharded_data_parallel.py(845): forward",
    "Optimizer.step#AdamW.step": "torch/optim/optimizer.py(485): wrapper",
    "Optimizer.zero_grad#AdamW.zero_grad": "torch/_compile.py(53): inner",
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__": "torch/utils/data/dataloader.py(703): __next__",
    "save_checkpoint": "train.py(118): save_checkpoint",
    "torch.save": "torch/serialization.py(943): save",
}
SAMPLES_PER_STEP = 24


def python_frames(writer: TraceWriter) -> list[Row]:
    """A `train.py` frame per step, and the frames of the calls that torch annotates, as `python_function` events."""
    place = writer.host_place("main")
    rows: list[tuple[float, float, str]] = [
        (start + 0.2, end - start - 1.4, "train.py(64): train_step")
        for start, end in zip(writer.rank.marks, writer.rank.marks[1:], strict=False)
    ]
    begin = writer.rank.marks[0]
    for event in writer.rank.events:
        frame = FRAMES.get(event.name)
        if frame is not None and event.start >= begin:
            rows.append((event.start - 0.1, event.dur + 0.2, frame))
    out = []
    for number, (start, dur, frame) in enumerate(sorted(rows), 1):
        args = f'"Python parent id": {0 if number == 1 else 1}, "Python id": {number}, "Ev Idx": {writer.next_index()}'
        head = f'"ph": "X", "cat": "python_function", "name": "{frame}", {place}'
        text = f'  {{\n    {head},\n    {writer.times(start, dur)},\n    "args": {{\n      {args}\n    }}\n  }}'
        out.append(Row(TEXT, "python_function", frame, place, start, dur, text))
    return out


def memory_events(writer: TraceWriter) -> list[Row]:
    """`[memory]` events: a saw tooth over each step, activations growing in forward and shrinking in backward; with
    recomputation a rise while each layer is computed again.
    """
    total = device_properties(writer.scenario.cluster.device)["totalGlobalMem"]
    reserved = int(total * writer.run.world.memory_share)
    out, before = [], int(0.45 * reserved)
    for i, (at, allocated) in enumerate(_levels(writer, total, reserved)):
        args = (
            f'"Total Reserved": {reserved}, "Total Allocated": {allocated}, "Bytes": {allocated - before}, '
            f'"Addr": {140000000000000 + i % SAMPLES_PER_STEP * 2097152}, "Device Id": {writer.device}, '
            f'"Device Type": 1, "Ev Idx": {writer.next_index()}'
        )
        before = allocated
        head = f'"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", {writer.host_place("main")}'
        text = f'  {{\n    {head}, {writer.moment(at)},\n    "args": {{\n      {args}\n    }}\n  }}'
        out.append(Row(TEXT, "cpu_instant_event", "[memory]", "", at, 0.0, text))
    return out


def _levels(writer: TraceWriter, total: int, reserved: int) -> list[tuple[float, int]]:
    """(moment, bytes held by tensors), in order."""
    floor, marks, found = 0.45 * reserved, writer.rank.marks, []
    grown = writer.run.world.activations_share * total
    if grown:
        for start, end in itertools.pairwise(marks):
            found += [(start + 1.0, int(0.95 * reserved)), (start + 2.0, int(floor))]
            for begin, over in writer.rank.recomputed:
                if start <= begin < end:
                    third = (over - begin) / 3
                    found += [(begin, int(floor)), (begin + third, int(floor + grown / 2))]
                    found += [(over - third, int(floor + grown)), (over + 1.0, int(floor))]
        return sorted(found)
    for start, end in itertools.pairwise(marks):
        for i in range(SAMPLES_PER_STEP):
            at = start + (i + 0.5) * (end - start) / SAMPLES_PER_STEP
            level = 1.0 - abs(2.0 * (i + 1) / SAMPLES_PER_STEP - 1.0)
            found.append((at, int(floor + 0.95 * (reserved - floor) * level)))
    return found
