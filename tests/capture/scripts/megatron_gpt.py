"""A Megatron-core GPT, tensor parallel over two CPU ranks; what Megatron asks of torch.cuda is answered here."""

from typing import Any

import torch

STEPS = 12
VOCABULARY, SEQUENCE, HIDDEN, HEADS, BATCH = 64, 16, 32, 4, 2


def without_cuda() -> None:
    """Answer for torch.cuda what Megatron-core asks of it."""
    cuda: Any = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")
    cuda.random.get_rng_state = cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    cuda.manual_seed = torch.manual_seed
    cuda.synchronize = lambda *_: None
    from megatron.core.tensor_parallel import random

    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)  # type: ignore[attr-defined]


def model() -> Any:
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

    off = ("bias_dropout_fusion", "gradient_accumulation_fusion", "masked_softmax_fusion")
    size = {"num_layers": 2, "hidden_size": HIDDEN, "num_attention_heads": HEADS, "tensor_model_parallel_size": 2}
    plain: dict[str, Any] = {"use_cpu_initialization": True, "pipeline_dtype": torch.float32}
    no_dropout = {"attention_dropout": 0.0, "hidden_dropout": 0.0}
    config = TransformerConfig(**size, **plain, **no_dropout, **dict.fromkeys(off, False))
    return GPTModel(config, get_gpt_layer_local_spec(normalization="RMSNorm"), VOCABULARY, SEQUENCE)


torch.distributed.init_process_group("gloo")
without_cuda()
from megatron.core import parallel_state, tensor_parallel  # noqa: E402

parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
tensor_parallel.model_parallel_cuda_manual_seed(1)
net = model()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
positions = torch.arange(SEQUENCE).expand(BATCH, SEQUENCE)
mask = torch.ones(1, 1, SEQUENCE, SEQUENCE, dtype=torch.bool).triu(1)
for step in range(STEPS):
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE), generator=torch.Generator().manual_seed(step))
    loss = net(tokens, positions, mask, labels=tokens.roll(-1, 1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.distributed.destroy_process_group()
