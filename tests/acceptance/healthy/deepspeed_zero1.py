"""DeepSpeed ZeRO stage 1; each rank draws its own samples."""

import deepspeed
import torch
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 48,
    "zero_optimization": {"stage": 1},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_allow_untested_optimizer": True,
}


deepspeed.init_distributed("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(256, 640), nn.GELU(), nn.Linear(640, 640), nn.GELU(), nn.Linear(640, 256))
engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=CONFIG)
torch.manual_seed(1 + engine.global_rank)
for _ in range(45):
    x = torch.randn(48, 256)
    engine.backward(nn.functional.mse_loss(engine(x), x))
    engine.step()
