"""Verdicts in a team's experiment trackers: wandb, MLflow, TensorBoard, Comet.

Each by its own library, imported when it is written to: never by `import ddprof`, never in a training process.
"""

from ddprof.slice import Slice

SLICE = Slice("trackers", destinations=("ddprof.slices.trackers.destination",))
