"""A small language model without a DataLoader: rank 0's documents are more than twice as long as rank 1's."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCABULARY = 500


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 96)
        layer = nn.TransformerEncoderLayer(96, 4, 192, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(96, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)))


def documents(rank, count):
    chance = random.Random(rank)
    for _ in range(count):
        length = chance.randint(110, 130) if rank == 0 else chance.randint(44, 54)
        yield torch.randint(VOCABULARY, (8, length))


def train():
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    model = DDP(LanguageModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for tokens in documents(dist.get_rank(), 50):
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


train()
