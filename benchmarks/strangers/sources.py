"""Batch sources of scripts: lines that define `loader`, each batch a pair (x, y). `@name` is a slot."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """Lines of a script; `slots` in them; whether `loader` is a DataLoader."""

    text: str
    slots: tuple[str, ...] = ()
    is_loader: bool = False


_ROW = """
class Rows(Dataset):
    def __init__(self):
        self.rows = torch.randn(512, WIDTH)

    def __len__(self):
        return BATCH * COUNT * world

    def __getitem__(self, index):
        @item
        return self.rows[index % 512], index % 4


def stack(rows):
    @collate
    return torch.stack([x for x, _ in rows]), torch.tensor([y for _, y in rows])


rows = Rows()
loader = DataLoader(rows, BATCH, sampler=DistributedSampler(rows), collate_fn=stack, num_workers=WORKERS)
"""
_STREAM = """
class Lines(IterableDataset):
    def __init__(self):
        self.rows = torch.randn(512, WIDTH)

    def __iter__(self):
        for index in range(rank, BATCH * COUNT * world, world):
            @item
            yield self.rows[index % 512], index % 4


loader = DataLoader(Lines(), BATCH, num_workers=WORKERS)
"""
_EPOCHS = (
    _ROW.split("loader =")[0]
    + """
part = torch.utils.data.Subset(rows, range(BATCH * EPOCH * world))
options = {"num_workers": 2, "persistent_workers": True}
@workers
drawn = DataLoader(part, BATCH, sampler=DistributedSampler(part), collate_fn=stack, **options)


def epochs():
    while True:
        yield from drawn


loader = epochs()
"""
)
EPOCH = 8  # batches of it
SOURCES = {
    "list of tensors": Source("""
loader = [(torch.randn(BATCH, WIDTH), torch.randint(0, 4, (BATCH,))) for _ in range(COUNT)]
"""),
    "generator": Source(
        """
def stream():
    while True:
        @produce
        yield torch.randn(BATCH, WIDTH), torch.randint(0, 4, (BATCH,))


loader = stream()
""",
        ("produce",),
    ),
    "thread": Source(
        """
shelf = queue.Queue(4)


def fill():
    while True:
        @produce
        shelf.put((torch.randn(BATCH, WIDTH), torch.randint(0, 4, (BATCH,))))


threading.Thread(target=fill, daemon=True).start()
loader = iter(shelf.get, None)
""",
        ("produce",),
    ),
    "map loader": Source(_ROW.replace("WORKERS", "0"), ("item", "collate"), True),
    "map loader, 2 workers": Source(_ROW.replace("WORKERS", "2"), ("item", "collate"), True),
    "short epochs": Source(_EPOCHS.replace("EPOCH", str(EPOCH)), ("item", "collate", "workers")),
    "iterable loader": Source(_STREAM.replace("WORKERS", "0"), ("item",), True),
    "iterable loader, 1 worker": Source(_STREAM.replace("WORKERS", "1"), ("item",), True),
}
