"""Helpers that the scripts beside it call."""

import json
import os
import re

import torch
import torch.distributed as dist


def line_up():
    for _ in range(3):
        dist.barrier()


class Publisher:
    def __init__(self, path):
        self.f = open(path, "a")  # noqa: SIM115

    def emit(self, **row):
        self.f.write(json.dumps(row) + "\n" + "x" * 200000)
        self.f.flush()
        os.fsync(self.f.fileno())


WORDS = re.compile(r"[a-z]+|[0-9]")


def featurize(texts, table):
    out = []
    for t in texts:
        ids = [table.setdefault(w, len(table) % 5000) for w in WORDS.findall(t.lower())]
        out.append((ids + [0] * 64)[:64])
    return torch.tensor(out)


def audit(n):
    best = 0
    for i in range(n):
        best = max(best, (i * 2654435761) % 1000003)
    return best
