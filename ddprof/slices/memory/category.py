"""Category of a memory block by the innermost telling frame of its allocation's stack.

A stack shows which work allocates, not what becomes of the bytes: blocks of an optimizer step are its state if they
outlive it (some optimizers make theirs anew in each step), temporary if freed within it. Nothing is guessed.
"""

from __future__ import annotations

import re

from ddprof.slices.memory.model import CodeFrame

PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS = "parameters", "gradients", "optimizer", "activations"
OPTIMIZER_STATE, OPTIMIZER_TEMPORARY = "optimizer_state", "optimizer_temporary"
COMMUNICATION, INPUTS, TEMPORARY, CACHE = "communication", "inputs", "temporary", "cache"
BEFORE, NO_STACK, OTHER = "before", "no_stack", "other"
UNKNOWN = (BEFORE, NO_STACK, OTHER)  # what nothing tells

# Category -> (its name for people, how it was decided).
WORDS: dict[str, tuple[str, str]] = {
    PARAMETERS: ("parameters", "made by a module's constructor, `.to()`, `.cuda()` or load_state_dict"),
    ACTIVATIONS: ("activations", "allocated in a forward pass"),
    GRADIENTS: ("gradients", "allocated by autograd's backward pass; those of activations until they are freed"),
    OPTIMIZER_STATE: ("optimizer state", "allocated in an optimizer's step and held after it"),
    OPTIMIZER_TEMPORARY: ("optimizer, temporary", "allocated in an optimizer's step and freed within it"),
    COMMUNICATION: ("communication", "buffers of torch.distributed: buckets, gathered shards"),
    CACHE: ("KV cache", "allocated where keys and values of earlier tokens are kept"),
    INPUTS: ("inputs", "as the file states"),
    TEMPORARY: ("temporary", "as the file states"),
    BEFORE: ("before the recording", "allocated before the first event, without a stack"),
    NO_STACK: ("no stack", "allocated by a thread that had no frames, as autograd's where C++ frames are not recorded"),
    OTHER: ("other", "no frame of its stack shows it"),
}
TRAINING = (GRADIENTS, OPTIMIZER_STATE, OPTIMIZER_TEMPORARY)  # what only a job that trains allocates
# Category -> how a job that trains holds less of it.
SMALLER = {
    PARAMETERS: "sharding (FSDP, ZeRO stage 3) divides them among the ranks",
    GRADIENTS: "sharding (FSDP, ZeRO stage 2) divides those of parameters among the ranks, a smaller micro-batch has "
    "smaller ones of activations",
    OPTIMIZER_STATE: "ZeRO stage 1 (ZeroRedundancyOptimizer) divides it among the ranks, an 8-bit optimizer has less",
    ACTIVATIONS: "a smaller micro-batch, activation checkpointing in training, and attention that stores no scores "
    "(scaled_dot_product_attention) hold less",
    CACHE: "fewer sequences at once, shorter ones, or keys and values in 8 bits hold less",
}
# Likewise where nothing shows that the job trains: inference keeps no activations for a backward pass.
SMALLER_UNTRAINED = SMALLER | {
    PARAMETERS: "FSDP in training, tensor parallelism in inference divide them among the ranks",
    ACTIVATIONS: "a smaller batch and attention that stores no scores (scaled_dot_product_attention) hold less; in "
    "training activation checkpointing, too",
}
_TOLD = {  # torch.profiler._memory_profiler.Category
    "input": INPUTS,
    "temporary": TEMPORARY,
    "activation": ACTIVATIONS,
    "gradient": GRADIENTS,
    "autograd_detail": ACTIVATIONS,  # what autograd saved for the backward pass
    "parameter": PARAMETERS,
    "optimizer_state": OPTIMIZER_STATE,
}
_ENGINE = re.compile(r"torch::autograd::(?:\w+::)*(?:Engine|PythonEngine|AccumulateGrad|GraphTask)\b")
_NODE = re.compile(r"torch::autograd::(?:generated::)?(?P<node>\w+Backward\d*|AccumulateGrad)\b")
_CONSTRUCTION = frozenset({"__init__", "to", "_apply", "cuda", "half", "bfloat16", "load_state_dict", "to_empty"})
_FORWARD = frozenset({"forward", "_call_impl", "_wrapped_call_impl"})
# transformers' cache_utils.py; init_cache of FlexGen, _allocate_kv_cache of vLLM, setup_caches of gpt-fast
_CACHES = re.compile(
    r"(?:^|/)(?:cache_utils|kv_?cache\w*|cache_engine)\.py$|(?:^|\s)\w*(?:kv_?cache|init_cache|setup_caches)\w*$"
)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|(?:^|/)torch/(?:nn|optim|autograd|cuda|utils|_\w+)/|^<")


def told_category(stated: str) -> str:
    """The category that a file states in torch's terms."""
    return _TOLD.get(stated, OTHER)


def category_of(stack: tuple[CodeFrame, ...]) -> str:
    """The allocating work by the innermost telling frame; OTHER without one."""
    for frame in stack:
        category = _of_frame(frame)
        if category:
            return category
    return OTHER


def _of_frame(frame: CodeFrame) -> str:
    file, function = frame.file.replace("\\", "/"), frame.function
    if "/torch/optim/" in file or (function == "step" and "optim" in file.lower()):
        return OPTIMIZER
    if function == "backward" or function == "_engine_run_backward" or _ENGINE.search(function):
        return GRADIENTS
    if "/torch/nn/parallel/distributed.py" in file and function == "_ddp_init_helper":
        return COMMUNICATION
    if _CACHES.search(f"{file} {function}") or _CACHES.search(file):
        return CACHE
    if function in _FORWARD or "/torch/nn/functional.py" in file:
        return ACTIVATIONS
    if "/torch/distributed/" in file:
        return COMMUNICATION
    if "/torch/nn/" in file and function in _CONSTRUCTION:
        return PARAMETERS
    return ""


def line_of(stack: tuple[CodeFrame, ...]) -> CodeFrame | None:
    """The innermost frame outside libraries, else autograd's node, else the innermost of Python; None without any."""
    python = [frame for frame in stack if frame.file.endswith(".py")]
    of_script = next((frame for frame in python if not _LIBRARY.search(frame.file.replace("\\", "/"))), None)
    if of_script is not None:
        return of_script
    node = next((match["node"] for frame in stack if (match := _NODE.search(frame.function))), None)
    if node is not None:
        return CodeFrame("", 0, node)
    return python[0] if python else None
