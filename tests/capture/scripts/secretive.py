"""One rank that trains a few steps, names secrets wherever a script can name something, and fails with them."""

import json
import sys
import threading
from pathlib import Path

import torch

KINDS = json.loads(Path(sys.argv[1]).read_text())
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
threads = [threading.Thread(target=threading.Event().wait, name=kind, daemon=True) for kind in KINDS[:8]]
for thread in threads:
    thread.start()
for step in range(6):
    with torch.profiler.record_function(KINDS[step]):
        model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def login(password: str) -> None:
    """Fail on a line that holds one."""
    raise RuntimeError(" ".join(KINDS)[:1900] if password else "")


login(password="inthesource42")  # the line is kept with the stack
