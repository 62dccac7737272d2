"""A trainer class with callbacks of which only rank 0 has any: one of them renders a table in Python each step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Callback:
    def on_step_end(self, trainer, loss):
        pass


class Progress(Callback):
    def on_step_end(self, trainer, loss):
        self.seen = trainer.step


class ConfusionTable(Callback):
    """Counts pairs of classes by hand."""

    def on_step_end(self, trainer, loss):
        table = [[0] * 40 for _ in range(40)]
        guess = trainer.last_output.argmax(1)
        for _ in range(800):
            for want, got in zip(trainer.last_target.tolist(), guess.tolist(), strict=True):
                table[want][got] += 1
        self.text = "\n".join(" ".join(f"{cell:4d}" for cell in row) for row in table)


class Trainer:
    def __init__(self, model, callbacks):
        self.model, self.callbacks, self.step = model, callbacks, 0
        self.optimizer = torch.optim.Adam(model.parameters())

    def fit(self, batches):
        for x, y in batches:
            self.step += 1
            self.train_batch(x, y)

    def train_batch(self, x, y):
        self.optimizer.zero_grad()
        self.last_output, self.last_target = self.model(x), y
        loss = nn.functional.cross_entropy(self.last_output, y)
        loss.backward()
        self.optimizer.step()
        for callback in self.callbacks:
            callback.on_step_end(self, loss)


def batches(count):
    for _ in range(count):
        yield torch.randn(64, 1, 16, 16), torch.randint(40, (64,))


dist.init_process_group("gloo")
torch.manual_seed(3)
layers = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU()]
network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(2304, 40))
Trainer(DDP(network), [Progress(), ConfusionTable()] if dist.get_rank() == 0 else []).fit(batches(50))
dist.destroy_process_group()
