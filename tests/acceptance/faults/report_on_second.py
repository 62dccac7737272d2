"""A hook of a Lightning module writes a report, on rank 1."""

import sys
import tempfile

import lightning
import torch


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 4))

    def training_step(self, batch, number):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.net(x), y)

    def on_train_batch_end(self, outputs, batch, number):
        if self.global_rank == 1:
            self.write_report()

    def write_report(self):
        rows = [(name, [round(v, 3) for v in p.flatten()[:9000].tolist()]) for name, p in self.named_parameters()]
        with tempfile.TemporaryFile("w") as report:
            report.write(repr(rows))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


samples = torch.utils.data.TensorDataset(torch.randn(6000, 64), torch.randint(0, 4, (6000,)))
off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
where = {"accelerator": "cpu", "devices": 2, "strategy": "ddp"}
trainer = lightning.Trainer(**where, max_steps=int(sys.argv[1]), **dict.fromkeys(off, False))
trainer.fit(Classifier(), torch.utils.data.DataLoader(samples, 16))
