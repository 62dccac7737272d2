"""Generated token sequences in the layout of a tokenised corpus: one flat array, samples are windows of it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ddprof.workloads.loading import EPOCH_STEPS

LONGEST = 1.5


class Texts(Dataset[Tensor]):
    """`count` windows of `length` + 1 tokens over a Zipf-like stream of `words` words."""

    def __init__(self, count: int, length: int, words: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        uniform = torch.rand(count * length + 1, generator=generator)
        self.stream = (words**uniform - 1).long().clamp_(0, words - 1)
        self.length = length
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        return self.stream[index * self.length : (index + 1) * self.length]


def texts_for(batch_size: int, replicas: int, length: int, words: int, seed: int) -> Texts:
    """An epoch's worth of texts for a job, each half as long again as the usual `length`."""
    return Texts(batch_size * replicas * EPOCH_STEPS, round(LONGEST * length), words, seed)


def cut(tokens: Tensor, length: int, share: float = 1.0) -> Tensor:
    """The batch with sequences of a share (at most `LONGEST`) of the usual length."""
    return tokens[:, : max(2, round(length * share))]
