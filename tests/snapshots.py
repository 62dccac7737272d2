"""Memory snapshots as PyTorch's caching allocator writes them, of a small allocator that is played here.

Fields are those of torch/csrc/cuda/Module.cpp (THCPModule_memorySnapshot): `requested_size` is what was asked for,
`size` of a block is that rounded up to 512 bytes; a segment's blocks follow one another; stacks are shared lists."""

import pickle
from pathlib import Path
from typing import Any

TORCH = "/env/lib/python3.11/site-packages/torch"
MIB = 1 << 20
SMALL_SEGMENT, LARGE_SEGMENT, SMALL_LIMIT = 2 * MIB, 20 * MIB, MIB


def frames(*places: tuple[str, int, str]) -> list[dict[str, Any]]:
    return [{"filename": file, "line": line, "name": name} for file, line, name in places]


FORWARD = frames((f"{TORCH}/nn/modules/linear.py", 125, "forward"), ("/home/me/model.py", 12, "forward"))
BACKWARD = frames((f"{TORCH}/autograd/graph.py", 829, "_engine_run_backward"), ("/home/me/train.py", 40, "main"))
BACKWARD_OF_MM = ("generated::AddmmBackward0::apply", "Engine::evaluate_function")
ENGINE = frames(("??", 0, "at::native::mm_cuda"), *(("??", 0, f"torch::autograd::{n}") for n in BACKWARD_OF_MM))
OPTIMIZER = frames((f"{TORCH}/optim/adam.py", 150, "_init_group"), ("/home/me/train.py", 41, "main"))
MODULE = f"{TORCH}/nn/modules/module.py"
MOVED = ((MODULE, 1300, "convert"), (MODULE, 930, "_apply"), (MODULE, 1340, "to"))
PARAMETERS = frames(*MOVED, ("/home/me/train.py", 20, "main"))
BATCH = frames(("/home/me/train.py", 35, "main"))


class Allocator:
    """First fit within segments, which are made as needed and freed when asked. Times are microseconds."""

    def __init__(self, device: int = 0, is_expandable: bool = False) -> None:
        self.device, self.is_expandable = device, is_expandable
        self.segments: dict[int, list[list[Any]]] = {}  # address -> [address, size, asked, stack]; stack None: free
        self.trace: list[dict[str, Any]] = []
        self.now_us, self._next = 1_700_000_000_000_000, 0x7F0000000000

    def alloc(self, asked: int, stack: list[dict[str, Any]] | None = None) -> int:
        size = max(512, -(-asked // 512) * 512)
        place = next((b for s in self.segments.values() for b in s if b[2] is None and b[1] >= size), None)
        if place is None:
            whole = SMALL_SEGMENT if size <= SMALL_LIMIT else max(LARGE_SEGMENT, -(-size // (2 * MIB)) * 2 * MIB)
            address, self._next = self._next, self._next + whole + 2 * MIB
            self._say("segment_map" if self.is_expandable else "segment_alloc", address, whole, stack)
            place = [address, whole, None, None]
            self.segments[address] = [place]
        blocks = next(s for s in self.segments.values() if any(b is place for b in s))
        at = next(i for i, b in enumerate(blocks) if b is place)
        if place[1] > size:
            blocks.insert(at + 1, [place[0] + size, place[1] - size, None, None])
        place[1:] = [size, asked, stack or []]
        self._say("alloc", place[0], asked, stack)
        return int(place[0])

    def free(self, address: int) -> None:
        blocks = next(s for s in self.segments.values() if any(b[0] == address and b[2] is not None for b in s))
        at = next(i for i, b in enumerate(blocks) if b[0] == address)
        asked = blocks[at][2]
        self._say("free_requested", address, asked, BATCH)
        self._say("free_completed", address, asked, BATCH)
        blocks[at][2:] = [None, None]
        for left in (at, at - 1):
            if 0 <= left < len(blocks) - 1 and blocks[left][2] is None and blocks[left + 1][2] is None:
                blocks[left][1] += blocks.pop(left + 1)[1]

    def empty_cache(self) -> None:
        for address in [a for a, blocks in self.segments.items() if len(blocks) == 1 and blocks[0][2] is None]:
            size = self.segments.pop(address)[0][1]
            self._say("segment_unmap" if self.is_expandable else "segment_free", address, size)

    def fail(self, asked: int, device_free: int, stack: list[dict[str, Any]] | None = None) -> None:
        self._say("oom", device_free, asked, stack, "device_free")

    def _say(self, action: str, address: int, size: int, stack: Any = None, key: str = "addr") -> None:
        self.now_us += 10
        entry = {"action": action, key: address, "size": size, "stream": 0, "time_us": self.now_us}
        entry |= {"compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0), "frames": stack or []}
        self.trace.append(entry)

    def dump(self, since: int = 0) -> dict[str, Any]:
        """The snapshot, of which the first `since` events were overwritten."""
        segments = []
        for address, blocks in self.segments.items():
            told = []
            for at, size, asked, stack in blocks:
                state = "inactive" if asked is None else "active_allocated"
                block = {"address": at, "size": size, "requested_size": asked or 0, "state": state}
                told.append({**block, "frames": stack or []})
            held = [b for b in blocks if b[2] is not None]
            segment = {"device": self.device, "address": address, "total_size": sum(b[1] for b in blocks)}
            segment |= dict.fromkeys(("allocated_size", "active_size"), sum(b[1] for b in held))
            segment |= {"requested_size": sum(b[2] for b in held), "stream": 0, "segment_type": "large"}
            segment |= {"segment_pool_id": (0, 0), "is_expandable": self.is_expandable, "frames": [], "blocks": told}
            segments.append(segment)
        settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": self.is_expandable, "max_split_size": -1}
        traces: list[list[dict[str, Any]]] = [[] for _ in range(self.device)]
        content = {"segments": segments, "device_traces": [*traces, self.trace[since:]]}
        return {**content, "allocator_settings": settings, "external_annotations": []}


def write(file: Path, content: dict[str, Any], protocol: int = 4) -> Path:
    file.write_bytes(pickle.dumps(content, protocol=protocol))
    return file
