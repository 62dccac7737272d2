"""Generated images in a JPEG-like layout: 8x8 blocks of quantised cosine coefficients, entropy-coded."""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset

BLOCK = 8
QUANTUM = 16.0
DISTINCT = 32  # pictures; a sample is one of them, so that generating the set takes no time


@lru_cache(maxsize=1)
def cosines() -> np.ndarray:
    """The 8 x 8 matrix of the orthonormal discrete cosine transform (type II)."""
    k, n = np.arange(BLOCK)[:, None], np.arange(BLOCK)[None]
    matrix = np.cos(np.pi * (2 * n + 1) * k / (2 * BLOCK)) * np.sqrt(2 / BLOCK)
    matrix[0] /= np.sqrt(2)
    return np.asarray(matrix, np.float32)


def encode(picture: np.ndarray) -> bytes:
    """A float picture (3, side, side), side a multiple of 8, as entropy-coded coefficients."""
    channels, side, _ = picture.shape
    blocks = picture.reshape(channels, side // BLOCK, BLOCK, side // BLOCK, BLOCK).transpose(0, 1, 3, 2, 4)
    coefficients = cosines() @ blocks @ cosines().T
    return zlib.compress(np.round(coefficients / QUANTUM * 255).astype(np.int16).tobytes(), 1)


def decode(data: bytes, side: int) -> Tensor:
    """Back to a tensor (3, side, side) in about [0, 1]."""
    count = side // BLOCK
    coefficients = np.frombuffer(zlib.decompress(data), np.int16).reshape(3, count, count, BLOCK, BLOCK)
    blocks = cosines().T @ (coefficients.astype(np.float32) * (QUANTUM / 255)) @ cosines()
    return torch.from_numpy(blocks.transpose(0, 1, 3, 2, 4).reshape(3, side, side).clip(0, 1))


class Pictures(Dataset[tuple[Tensor, int]]):
    """`count` labelled pictures of `stored_side`, decoded and shrunk to `side` when read, or once if `cached`."""

    def __init__(self, count: int, side: int, stored_side: int, classes: int, seed: int, cached: bool = False) -> None:
        draw = np.random.default_rng(seed)
        coarse = draw.random((DISTINCT, 3, stored_side // BLOCK, stored_side // BLOCK), np.float32)
        self.stored = [encode(c.repeat(BLOCK, 1).repeat(BLOCK, 2)) for c in coarse]
        self.side, self.stored_side, self.classes, self.count = side, stored_side, classes, count
        self.decoded = [self._read(index) for index in range(DISTINCT)] if cached else None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        kept = index % DISTINCT
        picture = self._read(kept) if self.decoded is None else self.decoded[kept]
        return picture, index % self.classes

    def _read(self, index: int) -> Tensor:
        picture = decode(self.stored[index], self.stored_side)
        return picture if self.stored_side == self.side else functional.adaptive_avg_pool2d(picture, self.side)
