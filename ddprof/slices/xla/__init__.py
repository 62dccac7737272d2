"""Profiles of JAX, TensorFlow and torch_xla: XPlane files, read with the package protobuf."""

from ddprof.slice import Slice

SLICE = Slice("xla", formats=("ddprof.slices.xla.format",))
