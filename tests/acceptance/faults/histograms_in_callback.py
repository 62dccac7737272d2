"""A callback of the Hugging Face trainer that rank 0 alone answers."""

import sys
import tempfile

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 4))

    def forward(self, x, labels=None):
        out = self.layers(x)
        return {"loss": torch.nn.functional.cross_entropy(out, labels), "logits": out}


class Histograms(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.is_world_process_zero:
            self.histograms(model)

    def histograms(self, model):
        for weights in model.parameters():
            for _ in range(6):
                torch.histc(weights.detach().float(), 100).tolist()
                sorted(weights.detach().flatten().tolist())


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 6400

    def __getitem__(self, i):
        return {"x": torch.randn(64), "labels": i % 4}


quiet = {"report_to": [], "save_strategy": "no", "logging_steps": 10**6, "disable_tqdm": True}
sizes = {"per_device_train_batch_size": 16, "max_steps": int(sys.argv[1])}
arguments = TrainingArguments(tempfile.mkdtemp(), use_cpu=True, **sizes, **quiet)
Trainer(Net(), arguments, train_dataset=Samples(), callbacks=[Histograms()]).train()
