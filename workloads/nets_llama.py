"""A Llama style decoder: RMS norm, rotary positions, gated perceptron, no biases."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class LlamaSize:
    """Llama-2-7B is 4096 wide, 32 heads, 32 layers, perceptron 11008, 32000 words."""

    width: int = 4096
    heads: int = 32
    layers: int = 32
    hidden: int = 11008
    words: int = 32000


def rotated(x: Tensor) -> Tensor:
    """Rotary positions on (batch, heads, length, head width)."""
    half = x.shape[-1] // 2
    rate = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angle = torch.arange(x.shape[-2], device=x.device)[:, None] * rate
    cos, sin = angle.cos(), angle.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Attention(nn.Module):
    """Causal self-attention; `head_width` stays when the projections are split over ranks."""

    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.head_width = size.width // size.heads
        self.q = nn.Linear(size.width, size.width, bias=False)
        self.k = nn.Linear(size.width, size.width, bias=False)
        self.v = nn.Linear(size.width, size.width, bias=False)
        self.o = nn.Linear(size.width, size.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length = x.shape[:2]
        q, k, v = (p(x).view(batch, length, -1, self.head_width).transpose(1, 2) for p in (self.q, self.k, self.v))
        seen = functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        y: Tensor = self.o(seen.transpose(1, 2).reshape(batch, length, -1))
        return y


class Perceptron(nn.Module):
    """Gated by SiLU."""

    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.gate = nn.Linear(size.width, size.hidden, bias=False)
        self.up = nn.Linear(size.width, size.hidden, bias=False)
        self.down = nn.Linear(size.hidden, size.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return y


class LlamaBlock(nn.Module):
    """Attention and perceptron, each behind a norm and added to its input."""

    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.norm_1 = nn.RMSNorm(size.width)
        self.attention = Attention(size)
        self.norm_2 = nn.RMSNorm(size.width)
        self.perceptron = Perceptron(size)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        y: Tensor = x + self.perceptron(self.norm_2(x))
        return y


class Llama(nn.Module):
    """Embedding, blocks, norm, output."""

    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.words = nn.Embedding(size.words, size.width)
        self.blocks = nn.ModuleList(LlamaBlock(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width)
        self.out = nn.Linear(size.width, size.words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.out(self.norm(x))
        return scores
