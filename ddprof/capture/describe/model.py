"""Parameters and the data-parallel wrapper of a model."""

from __future__ import annotations

import sys
from typing import Any

_MIB = 1 << 20
# Where `fully_shard` is defined: torch 2.6 and later, torch 2.4 and 2.5.
FSDP2_MODULES = ("torch.distributed.fsdp._fully_shard._fully_shard", "torch.distributed._composable.fsdp.fully_shard")
_MAX_NAMES = 4096  # per bucket table; beyond it the names are left out, the sizes stay


def describe(kind: str, model: Any) -> dict[str, Any]:
    """One of the job's models; `kind` is its wrapper ("ddp", "fsdp1", "fsdp2", "deepspeed", "module")."""
    wrapper = WRAPPERS.get(kind)
    return {
        "kind": kind,
        "class": type(getattr(model, "module", model)).__name__,
        "parameters": parameters(model),
        "settings": None if wrapper is None else wrapper(model),
    }


def parameters(model: Any) -> dict[str, Any]:
    """Count, bytes, main dtype and trainable share. For sharded parameters this rank's shard counts."""
    count = trainable = size_bytes = 0
    by_dtype: dict[str, int] = {}
    for parameter in model.parameters():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        elements = local.numel()
        count += elements
        size_bytes += elements * local.element_size()
        trainable += elements if parameter.requires_grad else 0
        name = str(local.dtype).removeprefix("torch.")
        by_dtype[name] = by_dtype.get(name, 0) + elements
    return {
        "count": count,
        "size_bytes": size_bytes,
        "dtype": max(by_dtype, key=lambda name: by_dtype[name]) if by_dtype else None,
        "trainable": trainable,
        "sharded": any(hasattr(parameter, "to_local") for parameter in model.parameters()),
    }


def mesh_dimensions(model: Any) -> list[str]:
    """Names of the mesh dimensions of its parameters ("tp", "dp_shard", ...), in order of appearance."""
    names: list[str] = []
    for parameter in model.parameters():
        mesh = getattr(parameter, "device_mesh", None)
        for name in getattr(mesh, "mesh_dim_names", None) or ():
            if name not in names:
                names.append(name)
    return names


def ddp(model: Any) -> dict[str, Any]:
    """DistributedDataParallel's settings and its buckets (as rebuilt after the first step, where they were)."""
    torch = sys.modules["torch"]
    first = getattr(sys.modules.get("torch.distributed"), "_DEFAULT_FIRST_BUCKET_BYTES", None)
    data: dict[str, Any] = (getattr(model, "_get_ddp_logging_data", None) or dict)()
    sizes = _numbers(data.get("rebuilt_bucket_sizes")) or _numbers(data.get("bucket_sizes"))
    cap_bytes = getattr(model, "bucket_bytes_cap", None)
    return {
        "bucket_cap_mb": _as_given_mib(cap_bytes) if isinstance(cap_bytes, int) and cap_bytes > 0 else None,
        "first_bucket_mb": first / _MIB if isinstance(first, int) else None,
        "bucket_sizes_bytes": sizes or None,
        "bucket_parameters": _bucket_parameters(model, data),
        "find_unused_parameters": getattr(model, "find_unused_parameters", None),
        "static_graph": getattr(model, "static_graph", None),
        "gradient_as_bucket_view": getattr(model, "gradient_as_bucket_view", None),
        "broadcast_buffers": getattr(model, "forward_sync_buffers", getattr(model, "broadcast_buffers", None)),
        "buffers": _buffers(model),
        "comm_hook": data.get("comm_hook") or None,
        "has_rebuilt_buckets": bool(data.get("has_rebuilt_buckets")),
        "module": type(getattr(model, "module", model)).__name__,
        "torch": torch.__version__,
    }


def _buffers(model: Any) -> dict[str, Any]:
    """The buffers that are kept equal: number, bytes, and the largest one."""
    named = getattr(model, "named_module_buffers", None) or {}
    sizes = {name: buffer.numel() * buffer.element_size() for name, buffer in named.items()}
    largest = max(sizes, key=lambda name: sizes[name], default=None)
    return {
        "count": len(sizes),
        "size_bytes": sum(sizes.values()),
        "largest": largest,
        "largest_bytes": 0 if largest is None else sizes[largest],
    }


def _numbers(text: Any) -> list[int]:
    return [int(part) for part in str(text or "").split(",") if part.strip().isdigit()]


def _as_given_mib(cap_bytes: int) -> float:
    """The shortest number that DDP truncates to these bytes: 1,048 bytes were written as 0.001 MiB."""
    for digits in range(1, 18):
        mib = float(f"{cap_bytes / _MIB:.{digits}g}")
        if int(mib * _MIB) == cap_bytes:
            return mib
    return cap_bytes / _MIB


def _bucket_parameters(model: Any, data: dict[str, Any]) -> list[list[str]] | None:
    """Names of the parameters in each bucket, in launch order, once DDP has rebuilt its buckets."""
    text = str(data.get("rebuilt_per_bucket_param_indices") or "")
    if not text:
        return None
    module = getattr(model, "module", model)
    names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    if len(names) > _MAX_NAMES:
        return None
    buckets = [[int(i) for i in bucket.split()] for bucket in text.split(",")]
    if any(i >= len(names) for bucket in buckets for i in bucket):
        return None  # parameters were ignored or shared: the indices do not mean these names
    return [[names[i] for i in bucket] for bucket in buckets]


def deepspeed(engine: Any) -> dict[str, Any]:
    """DeepSpeed's engine: ZeRO stage and offloading."""
    return {
        "zero_stage": _call(engine, "zero_optimization_stage"),
        "offload_optimizer": bool(_call(engine, "zero_offload_optimizer")),
        "offload_param": bool(_call(engine, "zero_offload_param")),
        "overlap_comm": _call(engine, "zero_overlap_comm"),
        "reduce_bucket_size": _call(engine, "zero_reduce_bucket_size"),
        "gradient_accumulation_steps": _call(engine, "gradient_accumulation_steps"),
        "module": type(getattr(engine, "module", engine)).__name__,
    }


def _call(thing: Any, name: str) -> Any:
    method = getattr(thing, name, None)
    return method() if callable(method) else None


def fsdp1(model: Any) -> dict[str, Any]:
    """FullyShardedDataParallel: one unit per wrapped module, the root among them."""
    cls = type(model)
    units = [module for module in model.modules() if isinstance(module, cls)]
    strategy = getattr(model, "sharding_strategy", None)
    name = getattr(strategy, "name", None)
    prefetch = getattr(getattr(model, "backward_prefetch", None), "name", None)
    return {
        "version": 1,
        "sharding_strategy": name,
        "reshard_after_forward": None if name is None else name in ("FULL_SHARD", "HYBRID_SHARD"),
        "units": len(units),
        "backward_prefetch": prefetch,
        "limit_all_gathers": getattr(model, "limit_all_gathers", None),
    }


def fsdp2(model: Any) -> dict[str, Any]:
    """`fully_shard`: the units are modules whose class was extended by FSDPModule."""
    unit_class = _fsdp_module_class()
    units = [module for module in model.modules() if unit_class is not None and isinstance(module, unit_class)]
    group = _parameter_group(units[-1] if units else model)
    mesh = getattr(group, "mesh_info", None)
    post = getattr(group, "post_forward_mesh_info", None)
    hybrid = type(mesh).__name__ == "HSDPMeshInfo"
    return {
        "version": 2,
        "sharding_strategy": None if mesh is None else "HYBRID_SHARD" if hybrid else "FULL_SHARD",
        "reshard_after_forward": None if group is None else post is not None,
        "units": len(units),
        "shard_size": getattr(mesh, "shard_mesh_size", None),
        "replicate_size": getattr(mesh, "replicate_mesh_size", None),
    }


def _fsdp_module_class() -> Any:
    defining = next((module for name in FSDP2_MODULES if (module := sys.modules.get(name)) is not None), None)
    return getattr(defining, "FSDPModule", None)


def _parameter_group(unit: Any) -> Any:
    getter = getattr(unit, "_get_fsdp_state", None)
    state = getter() if getter is not None else None
    group = getattr(state, "_fsdp_param_group", None)
    if group is None:
        groups = getattr(state, "_fsdp_param_groups", None)
        group = groups[0] if groups else None
    return group


WRAPPERS = {"ddp": ddp, "fsdp1": fsdp1, "fsdp2": fsdp2, "deepspeed": deepspeed}
