"""Loops with Python of the script's own in every step, by name, for so many steps."""

import http.client
import http.server
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Progress:
    def on_step_end(self, trainer, loss):
        self.seen = trainer.step


class ConfusionTable:
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


def callbacks_on_first(steps):
    """A trainer class with callbacks of which only rank 0 has any: one of them renders a table in Python each step."""
    layers = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(2304, 40))
    batches = ((torch.randn(64, 1, 16, 16), torch.randint(40, (64,))) for _ in range(steps))
    Trainer(DDP(network), [Progress(), ConfusionTable()] if dist.get_rank() == 0 else []).fit(batches)


class Clipper:
    def __init__(self, most):
        self.most = most

    def limit_each(self, model):
        for weights in model.parameters():
            norm = weights.grad.pow(2).sum().sqrt().item()
            if norm > self.most:
                weights.grad.mul_(self.most / (norm + 1e-6))
            [float(v) for v in torch.histc(weights.grad.float(), 64)]


def clip_each_tensor(steps):
    """Gradients are clipped by hand, tensor by tensor, with a histogram of each."""
    layers = [layer for _ in range(40) for layer in (nn.Linear(96, 96), nn.ReLU())]
    net = DDP(nn.Sequential(*layers, nn.Linear(96, 3)))
    opt, clipper = torch.optim.SGD(net.parameters(), 1e-3), Clipper(0.1)
    for _ in range(steps):
        opt.zero_grad()
        nn.functional.cross_entropy(net(torch.randn(16, 96)), torch.randint(0, 3, (16,))).backward()
        clipper.limit_each(net)
        opt.step()


def count_large(state, bucket):
    values = bucket.buffer()
    for value in values[:20000].tolist():
        state["large"] += abs(value) > 1e-3
    state["sent"] += values.numel()
    sent = dist.all_reduce(values, async_op=True).get_future()
    return sent.then(lambda done: done.value()[0] / dist.get_world_size())


def hook_counts_gradients(steps):
    """A communication hook of the script looks at single gradients in Python before it sends a bucket."""
    model = DDP(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)))
    model.register_comm_hook({"large": 0, "sent": 0}, count_large)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        x, y = torch.randn(64, 256), torch.randint(10, (64,))
        sgd.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        sgd.step()


class Answers(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.02)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


class Tracker:
    def __init__(self, port):
        self.port = port

    def push(self, **values):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", "/log", json.dumps(values))
        connection.getresponse().read()
        connection.close()


def tracker_in_loop(steps, server):
    """All ranks post their metrics to a tracker in every step, and wait for its answer."""
    tracker = Tracker(server.server_port)
    net = DDP(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 10)))
    opt = torch.optim.Adam(net.parameters())
    for step in range(steps):
        loss = nn.functional.cross_entropy(net(torch.randn(64, 256)), torch.randint(0, 10, (64,)))
        loss.backward()
        opt.step()
        opt.zero_grad()
        tracker.push(step=step, loss=loss.item())


def main(name, steps):
    server = child = None
    if name == "tracker_in_loop":  # which answers in a process of its own, made before torch has threads
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        child = os.fork()
        if child == 0:
            server.serve_forever()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    globals()[name](steps, *([server] if server else []))
    dist.destroy_process_group()
    if child:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
