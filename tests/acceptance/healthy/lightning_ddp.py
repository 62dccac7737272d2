"""Lightning with its DDP strategy, in ranks that torchrun has started."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(200, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)

    def train_dataloader(self):
        data = TensorDataset(torch.randn(2 * 64 * 45, 200), torch.randint(10, (2 * 64 * 45,)))
        return DataLoader(data, batch_size=64, shuffle=True)


if __name__ == "__main__":
    lightning.seed_everything(0)
    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    where = {"accelerator": "cpu", "devices": 2, "strategy": "ddp"}
    lightning.Trainer(**where, max_epochs=1, **dict.fromkeys(off, False)).fit(Classifier())
