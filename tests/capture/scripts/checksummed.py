"""Each rank's checksum of what its optimizers hold when a script ends: `checksummed.py FOLDER SCRIPT ARGS...`."""

import hashlib
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


def main() -> None:
    """The script as it would run by itself, then the checksum of all parameters, in order."""
    folder, script = Path(sys.argv[1]), sys.argv[2]
    optimizers: dict[int, Any] = {}
    register_optimizer_step_post_hook(lambda o, *_: optimizers.setdefault(id(o), o))
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(script).parent)
    end = torch.distributed.destroy_process_group
    digests: list[str] = []

    def summed(*args: Any) -> None:
        digests.append(_digest(optimizers.values()))
        end(*args)

    torch.distributed.destroy_process_group = summed
    runpy.run_path(script, run_name="__main__")
    (folder / os.environ["RANK"]).write_text(digests[0] if digests else _digest(optimizers.values()))


def _digest(optimizers: Any) -> str:
    found = hashlib.sha256()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
                found.update(local.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    main()
