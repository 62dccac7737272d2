"""Training loops of scripts: lines after the model and the loader. `@name` is a slot; `ticks`: end times of steps."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.strangers.sources import SOURCES

_INNER = ("forward", "hook", "loss")
_DDP = "options = {}\n@wrapped\nnet = DDP(core, **options)"
_ALL = ("before", "fed", *_INNER, "between", "after", "wrapped")


@dataclass(frozen=True)
class Loop:
    """Lines of a script. `wrap`: how `net` and `opt` are made of `core`."""

    text: str
    slots: tuple[str, ...]
    wrap: str = f"{_DDP}\nopt = torch.optim.SGD(net.parameters(), 0.01)"
    needs_loader: bool = False
    per_step: int = 1
    own_gpus: bool = False  # each rank takes a GPU of its own
    cannot: tuple[str, ...] = ()  # faults that would hang it: a shard alone can neither be run nor saved

    def takes(self, source: str) -> bool:
        """True where it can read batches of this source."""
        return SOURCES[source].is_loader or not self.needs_loader


_PLAIN = """
def main():
    batches = iter(loader)
    for step in range(STEPS):
        @before
        x, y = next(batches)
        @fed
        loss = mean_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        @between
        opt.step()
        @after
        ticks.append(time.perf_counter())


main()
"""
_CLOSURES = """
def trainer(net, opt):
    def update(x, y):
        opt.zero_grad()
        loss = mean_loss(net(x), y)
        loss.backward()
        @between
        opt.step()
        return loss

    def run(batches):
        for step in range(STEPS):
            @before
            x, y = next(batches)
            @fed
            update(x, y)
            @after
            ticks.append(time.perf_counter())

    return run


trainer(net, opt)(iter(loader))
"""
_CALLBACKS = """
class Meter:
    def on_end(self, trainer, loss):
        @callback
        self.last = loss


class Trainer:
    def __init__(self, net, opt, callbacks):
        self.net, self.opt, self.callbacks = net, opt, callbacks

    def fit(self, batches):
        for step in range(STEPS):
            @before
            x, y = next(batches)
            @fed
            loss = mean_loss(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            @between
            self.opt.step()
            for one in self.callbacks:
                one.on_end(self, loss.item())
            ticks.append(time.perf_counter())


Trainer(net, opt, [Meter()]).fit(iter(loader))
"""
_MICRO = """
batches = iter(loader)
for step in range(STEPS):
    @before
    for part in range(3):
        x, y = next(batches)
        @fed
        with net.no_sync() if part < 2 else contextlib.nullcontext():
            (mean_loss(net(x), y) / 3).backward()
    @between
    opt.step()
    opt.zero_grad()
    @after
    ticks.append(time.perf_counter())
"""
_PAIR = """
other = DDP(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)))
second = torch.optim.Adam(other.parameters(), 1e-4)
batches = iter(loader)
for step in range(STEPS):
    @before
    x, y = next(batches)
    @fed
    opt.zero_grad()
    mean_loss(net(x), y).backward()
    @between
    opt.step()
    second.zero_grad()
    (other(x) ** 2).mean().backward()
    second.step()
    @after
    ticks.append(time.perf_counter())
"""
_MANUAL = """
for number, (x, y) in zip(range(STEPS), loader):
    @fed
    opt.zero_grad()
    mean_loss(net(x), y).backward()
    @between
    for p in net.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= world
    opt.step()
    @after
    ticks.append(time.perf_counter())
"""
_LBFGS = """
batches = iter(loader)
for step in range(STEPS):
    @before
    x, y = next(batches)
    @fed

    def closure():
        opt.zero_grad()
        loss = mean_loss(net(x), y)
        loss.backward()
        return loss

    opt.step(closure)
    @after
    ticks.append(time.perf_counter())
"""
_ACCELERATE = """
for number, (x, y) in zip(range(STEPS), loader):
    @fed
    with accelerator.accumulate(net):
        loss = mean_loss(net(x), y)
        accelerator.backward(loss)
        @between
        opt.step()
        opt.zero_grad()
    @after
    ticks.append(time.perf_counter())
"""
_LIGHTNING = """
class Meter(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        @callback
        ticks.append(time.perf_counter())


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.core = core

    def training_step(self, batch, number):
        x, y = batch
        @fed
        return mean_loss(self.core(x), y)

    def on_before_optimizer_step(self, optimizer):
        @between
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=world,
    strategy="ddp",
    max_steps=STEPS,
    callbacks=[Meter()],
    use_distributed_sampler=False,
    **quiet,
)
trainer.fit(Module(), loader)
"""
LOOPS = {
    "plain": Loop(_PLAIN, _ALL),
    "closures": Loop(_CLOSURES, _ALL),
    "trainer": Loop(_CALLBACKS, ("before", "fed", *_INNER, "between", "callback", "wrapped")),
    "accumulation": Loop(_MICRO, _ALL, per_step=3),
    "two models": Loop(_PAIR, _ALL),
    "manual all-reduce": Loop(
        _MANUAL, ("fed", *_INNER, "between", "after"), "net = core\nopt = torch.optim.SGD(net.parameters(), 0.01)"
    ),
    "autocast": Loop(
        _PLAIN.replace(
            "loss = mean_loss(net(x), y)", "with torch.autocast('cpu'):\n            loss = mean_loss(net(x), y)"
        ),
        _ALL,
    ),
    "compile": Loop(
        _PLAIN,
        ("before", "fed", "loss", "between", "after"),
        "net = torch.compile(DDP(core), backend='aot_eager')\nopt = torch.optim.SGD(net.parameters(), 0.01)",
    ),
    "fsdp2": Loop(
        _PLAIN,
        ("before", "fed", "forward", "loss", "between", "after"),
        "for layer in core.layers:\n    fully_shard(layer, mesh=init_device_mesh('cpu', (world,)))\n"
        "net = fully_shard(core, mesh=init_device_mesh('cpu', (world,)))\n"
        "opt = torch.optim.SGD(net.parameters(), 0.01)",
        cannot=("evaluation", "scoring", "checkpoint"),  # its model gathers weights: no rank can call it alone
    ),
    "lbfgs": Loop(
        _LBFGS,
        ("before", "fed", *_INNER, "after", "wrapped"),
        f"{_DDP}\nopt = torch.optim.LBFGS(net.parameters(), lr=0.01, max_iter=2, history_size=3)",
    ),
    "accelerate": Loop(
        _ACCELERATE,
        ("fed", *_INNER, "between", "after"),
        "accelerator = accelerate.Accelerator(cpu=True)\n"
        "net, opt = accelerator.prepare(core, torch.optim.SGD(core.parameters(), 0.01))",
        needs_loader=True,
        own_gpus=True,
    ),
    "lightning": Loop(_LIGHTNING, ("fed", *_INNER, "between", "callback"), "", needs_loader=True, own_gpus=True),
}
