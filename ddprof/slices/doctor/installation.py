"""ddprof itself: its version, what of it was compiled, and the extras that are installed."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from ddprof._version import __version__
from ddprof.slices.doctor.model import Provision, State

# Module -> what is lost without it.
COMPILED = {
    "ddprof.readers._scan": "reading traces takes three times as long",
    "ddprof.capture.steps._phases": "phase timers cost the training thread more",
    "ddprof.capture.stacks._stacks": "stacks are sampled in Python, which sees little of a busy loop",
}
# Extra -> (the distribution it brings, what it is for).
EXTRAS = {
    "fast": ("isal", "reads packed traces faster"),
    "dashboard": ("dash", "`ddprof serve` and the charts of `ddprof report`"),
    "patch": ("libcst", "`ddprof patch` and the patch of `ddprof tune`"),
    "dask": ("distributed", "`--engine dask://HOST:PORT`"),
    "s3": ("s3fs", "s3:// URLs"),
    "xplane": ("protobuf", "profiles of JAX and TensorFlow (*.xplane.pb)"),
    "mcp": ("mcp", "`ddprof mcp`, for assistants"),
    "wandb": ("wandb", "`--to wandb`, `--log-to wandb`"),
    "mlflow": ("mlflow", "`--to mlflow`, `--log-to mlflow`"),
    "tensorboard": ("tensorboard", "`--to tensorboard`, `--log-to tensorboard`"),
    "comet": ("comet_ml", "`--to comet`, `--log-to comet`"),
    "nvtx": ("nvtx", "NVTX ranges, for Nsight Systems"),
}


def installation() -> Iterator[Provision]:
    """Checks of the environment that runs this process."""
    yield Provision("ddprof", State.OK, f"{__version__}, on Python {platform.python_version()} ({platform.machine()})")
    lacking = {module: loss for module, loss in COMPILED.items() if find_spec(module) is None}
    if lacking:
        remedy = "install a C compiler and Python's headers, then ddprof again; or a wheel of this platform"
        yield Provision("compiled parts", State.MISSING, "; ".join(lacking.values()), remedy)
    else:
        yield Provision("compiled parts", State.OK, "scanner, phase timers and stack sampler are built")
    for extra, (distribution, purpose) in EXTRAS.items():
        try:
            yield Provision(f"extra {extra}", State.OK, f"{distribution} {version(distribution)}: {purpose}")
        except PackageNotFoundError:
            yield Provision(f"extra {extra}", State.MISSING, purpose, f"pip install 'ddprof[{extra}]'")
