"""Batches that the training loop prepares itself: texts cut into word pieces, images changed one by one."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from ddprof.workloads.amounts import Amount
from ddprof.workloads.job import Place

PIECES = ("un", "re", "ing", "ed", "tion", "er", "ly", "al", "en", "is", "or", "at", "on", "a", "e", "i", "o", "n", "s")


class Preparing:
    """Tokenizes or augments in the training loop, until the fix stores what comes out of it."""

    def __init__(self, place: Place) -> None:
        self.amount = Amount(place.switches.delay_s, place)
        self.tokenizes = place.switches.on("tokenize", until="stored")
        self.augments = place.switches.on("augment", until="stored")

    def texts(self, tokens: Tensor) -> Tensor:
        """Token sequences (batch, length), read from text again where the fault wants that."""
        if self.tokenizes:
            texts = [as_text(row) for row in tokens.tolist()]
            self.amount.of(lambda _: tokenize(texts))
        return tokens

    def images(self, images: Tensor) -> Tensor:
        """Images (batch, channels, side, side), augmented where the fault wants that."""
        if self.augments:
            self.amount.of(lambda _: augment(images))
        return images


def as_text(tokens: list[int]) -> str:
    """A text with a word for each token."""
    return " ".join(PIECES[t % len(PIECES)] + PIECES[t // len(PIECES) % len(PIECES)] for t in tokens)


def tokenize(texts: list[str]) -> list[list[int]]:
    """Greedy longest match, as WordPiece does (Devlin et al., arXiv:1810.04805)."""
    return [[piece for word in text.split() for piece in word_pieces(word)] for text in texts]


def word_pieces(word: str) -> list[int]:
    """The pieces of a word, the longest first."""
    numbers, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            if word[start:end] in PIECES:
                numbers.append(PIECES.index(word[start:end]))
                start = end
                break
        else:
            start += 1
    return numbers


def augment(images: Tensor) -> Tensor:
    """Crop, flip and brightness of every image, one image at a time."""
    changed = []
    for image in images:
        side = image.shape[-1]
        left, top = random.randint(0, 4), random.randint(0, 4)
        padded = torch.nn.functional.pad(image, (2, 2, 2, 2), mode="reflect")
        cropped = padded[:, top : top + side, left : left + side]
        flipped = cropped.flip(-1) if random.random() < 0.5 else cropped
        changed.append((flipped * random.uniform(0.8, 1.2)).clamp(0, 1))
    return torch.stack(changed)
