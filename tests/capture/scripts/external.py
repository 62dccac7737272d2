"""One small regression per framework: `external.py trainer|accelerate|lightning|deepspeed [STAGE]`; two ranks, CPU."""

import json
import os
import sys
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

STEPS = 12
WIDTH = 16


class Pairs(Dataset[Any]):
    """Deterministic samples as a dict, the way the Trainer wants them."""

    def __len__(self) -> int:
        return 2 * 2 * 4 * STEPS

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        x = torch.randn(WIDTH, generator=torch.Generator().manual_seed(index))
        return {"x": x, "labels": x.flip(0)}


class Net(nn.Module):
    """Returns a dict with the loss, the way the Trainer wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH))

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": nn.functional.mse_loss(self.layers(x), labels)}


def trainer() -> None:
    """Hugging Face Trainer, two accumulation steps."""
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        sizes = {"max_steps": STEPS, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
        quiet: dict[str, Any] = {"report_to": [], "save_strategy": "no", "logging_steps": 100, "disable_tqdm": True}
        arguments = TrainingArguments(output_dir=folder, use_cpu=True, **sizes, **quiet)
        Trainer(model=Net(), args=arguments, train_dataset=Pairs()).train()


def accelerate() -> None:
    """Accelerate's own loop, two accumulation steps."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Pairs(), batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()
    accelerator.end_training()


def lightning() -> None:
    """Lightning starts its own second process."""
    import lightning as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    where: dict[str, Any] = {"accelerator": "cpu", "devices": 2, "strategy": "ddp"}
    left_out = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = pl.Trainer(**where, max_steps=STEPS, accumulate_grad_batches=2, **dict.fromkeys(left_out, False))
    trainer.fit(Module(), DataLoader(Pairs(), batch_size=4))


def deepspeed() -> None:
    """ZeRO stage 0 to 3, two accumulation steps."""
    import deepspeed as ds

    stage = int(sys.argv[2])
    ds.init_distributed("gloo")
    model = Net()
    sizes = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}
    optimizer = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
    config = {**sizes, "zero_optimization": {"stage": stage}, "optimizer": optimizer, "wall_clock_breakdown": False}
    engine, _, _, _ = ds.initialize(model=model, model_parameters=model.parameters(), config=config)
    for index, batch in enumerate(DataLoader(Pairs(), batch_size=4)):
        if index >= 2 * STEPS:
            break
        engine.backward(engine(**batch)["loss"])
        engine.step()


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    {"trainer": trainer, "accelerate": accelerate, "lightning": lightning, "deepspeed": deepspeed}[sys.argv[1]]()
    print(json.dumps({"finished": sys.argv[1]}), flush=True)
