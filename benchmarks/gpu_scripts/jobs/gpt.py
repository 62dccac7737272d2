"""Small GPT. FAULT=1, by MODE: opt (a kernel for each parameter), save (every eighth step), empty (the allocator's
cache, each step), timers (a synchronization before the optimizer), eval (often), anomaly (left on), clip (norms read
one by one), ema (by parameter), blocking (launches), precision (fp32 products), gc (each step), logs (histograms)."""

import gc
import math
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from turn import FAULT, STEPS, Turn

MODE = os.environ.get("MODE", "opt")
FAULTY = MODE if FAULT else ""


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.before, self.between = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        parts = self.qkv(self.before(x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.between(x))


class GPT(nn.Module):
    def __init__(self, words, width, layers, heads, length):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens, targets):
        x = self.blocks(self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device)))
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def get_batch():
    starts = torch.randint(len(text) - length - 1, (batch,))
    pair = [torch.stack([text[i + off : i + off + length] for i in starts]) for off in (0, 1)]
    return [each.pin_memory().to(device, non_blocking=True) for each in pair] if device == "cuda" else pair


def clip(parameters, most):
    total = math.sqrt(sum(each.grad.norm().item() ** 2 for each in parameters))
    if total > most:
        for each in parameters:
            each.grad.mul_(most / total)


@torch.no_grad()
def average(model):
    if FAULT:
        for name, each in model.named_parameters():
            smooth[name] = 0.999 * smooth[name] + 0.001 * each
    else:
        torch._foreach_lerp_(list(smooth.values()), list(model.parameters()), 0.001)


def write_histograms(model):
    with open(os.path.join(folder, "histograms.txt"), "w") as log:
        for name, each in model.named_parameters():
            log.write(f"{name} {each.detach().histc(64).cpu().tolist()}\n")


if FAULTY == "blocking":
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # read when the device is first used
turn, folder = Turn(), tempfile.mkdtemp()
device = turn.device
words, width, layers, heads, length, batch = (8192, 768, 12, 12, 512, 8) if device == "cuda" else (256, 32, 2, 2, 32, 2)
text = torch.randint(0, words, (200_000,))
torch.set_float32_matmul_precision("highest" if FAULTY == "precision" else "high")
torch.autograd.set_detect_anomaly(FAULTY == "anomaly")
model = GPT(words, width, layers, heads, length).to(device)
implementation = {"foreach": False} if FAULTY == "opt" else {"fused": True}
optimizer = torch.optim.AdamW(model.parameters(), 3e-4, **implementation)
smooth = {name: each.detach().clone() for name, each in model.named_parameters()}
best = math.inf
for step in range(STEPS):
    turn.step()
    if FAULTY == "save" and step % 8 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, os.path.join(folder, "gpt.pt"))
    if FAULTY == "eval" and step % 20 == 0:
        model.eval()
        with torch.no_grad(), torch.autocast(device, torch.bfloat16):
            best = min(best, sum(model(*get_batch()).item() for _ in range(10)) / 10)
        model.train()
    tokens, targets = get_batch()
    with torch.autocast(device, torch.bfloat16, enabled=MODE != "precision"):
        loss = model(tokens, targets)
    loss.backward()
    if FAULTY == "clip":
        clip(list(model.parameters()), 1.0)
    elif MODE == "clip":
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if FAULTY == "timers":
        turn.sync()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if FAULTY == "empty":
        torch.cuda.empty_cache()
    if MODE == "ema":
        average(model)
    if FAULTY == "gc":
        kept = [[number] for number in range(60_000)]
        del kept
        gc.collect()
    if FAULTY == "logs" and step % 4 == 0:
        write_histograms(model)
turn.end()
