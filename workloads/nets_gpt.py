"""A GPT-2 style decoder: pre-norm blocks, causal attention, learned positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class GptSize:
    """GPT-2 small is 768 wide, 12 heads, 12 layers, 1024 tokens, 50257 words."""

    width: int = 768
    heads: int = 12
    layers: int = 12
    length: int = 1024
    words: int = 50257


class Block(nn.Module):
    """Attention and a four times wider perceptron, each added to its input."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm_1 = nn.LayerNorm(size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.project = nn.Linear(size.width, size.width)
        self.norm_2 = nn.LayerNorm(size.width)
        self.up = nn.Linear(size.width, 4 * size.width)
        self.down = nn.Linear(4 * size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind()
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        y: Tensor = x + self.down(functional.gelu(self.up(self.norm_2(x))))
        return y


class Embedding(nn.Module):
    """Words and positions."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.words = nn.Embedding(size.words, size.width)
        self.positions = nn.Embedding(size.length, size.width)

    def forward(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.words(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return x


class Head(nn.Module):
    """The final norm and the scores of all words."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size.width)
        self.out = nn.Linear(size.width, size.words, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(self.norm(x))
        return scores


class Gpt(nn.Module):
    """Embedding, blocks, head."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.embedding = Embedding(size)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.head = Head(size)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(x)
        return scores


def next_word_loss(scores: Tensor, tokens: Tensor) -> Tensor:
    """Cross entropy of every word given those before it."""
    return functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
