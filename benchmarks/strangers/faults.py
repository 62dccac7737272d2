"""The faults: what is written into a slot of a script, and what a finding may call it.

A line of a body may use `rank`, `world`, `ticks` (times of the steps so far), `net` and `{n}`, the amount. Names are
those that a script would have: nothing says that it is a fault.
"""

from __future__ import annotations

from dataclasses import dataclass

IN_LOOP = ("before", "fed", "loss", "between", "after", "callback")
ANYWHERE = (*IN_LOOP, "forward", "hook")
BESIDE = ("thread",)  # begun once before the loop, and beside it from then on
OF_LOADER = ("item", "collate", "produce", "workers")
ON_RANKS = ("straggler.host", "straggler.imbalance", "straggler.unexplained", "host.script", "host.stalled")
OF_ALL = ("host.script", "host.stalled")


@dataclass(frozen=True)
class Fault:
    """One kind. `per_ms`: what of `{n}` takes a millisecond. `on_ranks`, `of_all`: accepted findings; where the
    fault is in what makes a batch, those on loaders are accepted instead. `is_inline`: it changes what is around it.
    """

    name: str
    body: tuple[str, ...]
    places: tuple[str, ...] = ANYWHERE
    per_ms: float = 1.0
    setup: tuple[str, ...] = ()
    on_ranks: tuple[str, ...] = ON_RANKS
    of_all: tuple[str, ...] = OF_ALL
    whom: tuple[str, ...] = ("first", "last", "half", "all", "turns")
    is_steady: bool = False
    is_inline: bool = False

    def fits(self, who: str, where: str) -> bool:
        """True where ranks can have the fault so."""
        return who in self.whom and (who != "turns" or where in ANYWHERE)

    def count(self, amount_ms: float) -> int:
        """Value of `{n}` for this duration; at least two for repeated work."""
        return max(2 if self.is_inline else 1, round(amount_ms * self.per_ms))

    def accepted(self, who: str, where: str) -> tuple[str, ...]:
        """Findings that name its mechanism."""
        if where in OF_LOADER:
            return ("input.starved",) if who == "all" else ("input.straggler",)
        return self.of_all if who == "all" else self.on_ranks


_SAVES = ("host.checkpoint",)
_MEETS = ("comm.barrier", "comm.latency_bound", "comm.bandwidth_bound")
_EVALUATES = ("host.evaluation",)
_EVERY = (
    Fault("sleep", ("time.sleep({n} / 1000)",), (*ANYWHERE, *OF_LOADER)),
    Fault("python", ("total = sum(v * v % 7 for v in range({n}))",), (*ANYWHERE, *OF_LOADER), per_ms=20_000),
    Fault("numpy", ("order = np.sort(np.sin(np.arange({n}.0)))",), (*ANYWHERE, *OF_LOADER), per_ms=20_000),
    Fault(
        "json",
        ("text = json.dumps(table[:{n}])",),
        (*ANYWHERE, *OF_LOADER),
        per_ms=2_800,
        setup=("table = [v / 7 for v in range(400_000)]",),
    ),
    Fault(
        "fsync",
        ("for _ in range({n}):", "    notes.write('x' * 4096)", "    notes.flush()", "    os.fsync(notes.fileno())"),
        IN_LOOP,
        per_ms=1,
        setup=("notes = open(f'{folder}/notes{rank}.txt', 'w')",),
        on_ranks=(*ON_RANKS, *_SAVES),
        of_all=(*OF_ALL, *_SAVES),
    ),
    Fault(
        "lock",
        ("wanted.set()", "time.sleep(0.0005)", "with gate:", "    wanted.clear()"),
        IN_LOOP,
        setup=(
            "gate, wanted = threading.Lock(), threading.Event()",
            "",
            "def keep():",
            "    while True:",
            "        wanted.wait()",
            "        with gate:",
            "            time.sleep({n} / 1000)",
            "        wanted.clear()",
            "        time.sleep(0.002)",
            "",
            "threading.Thread(target=keep, daemon=True).start()",
        ),
    ),
    Fault(
        "socket",
        ("near.send(b'now')", "near.recv(16)"),
        (*IN_LOOP, "forward"),
        setup=(
            "near, far = socket.socketpair()",
            "",
            "def answer():",
            "    while far.recv(16):",
            "        time.sleep({n} / 1000)",
            "        far.send(b'yes')",
            "",
            "threading.Thread(target=answer, daemon=True).start()",
        ),
    ),
    Fault(
        "gc",
        ("gc.collect()",),
        IN_LOOP,
        per_ms=21_000,
        setup=("gc.freeze()", "memo = [[v] for v in range({n})]"),
        on_ranks=(*ON_RANKS, "host.gc"),
        of_all=("host.gc",),
    ),
    Fault(
        "logging",
        ("for v in range({n}):", "    log.info('value %d of %s', v, rank)"),
        IN_LOOP,
        per_ms=120,
        setup=(
            "log = logging.getLogger('job')",
            "log.addHandler(logging.FileHandler(f'{folder}/job{rank}.log'))",
            "log.setLevel(logging.INFO)",
        ),
    ),
    Fault(
        "evaluation",
        (
            "core.eval()",
            "with torch.no_grad():",
            "    for _ in range({n}):",
            "        seen = core(held).mean()",
            "core.train()",
        ),
        ("after", "callback"),
        per_ms=0.3,
        setup=("held = torch.randn(64, WIDTH)",),
        on_ranks=(*ON_RANKS, *_EVALUATES),
        of_all=_EVALUATES,
    ),
    Fault(
        "scoring",
        ("with torch.no_grad():", "    for _ in range({n}):", "        seen = core(held).mean()"),
        ("after", "callback"),
        per_ms=0.3,
        setup=("held = torch.randn(64, WIDTH)",),
        on_ranks=(*ON_RANKS, *_EVALUATES),
        of_all=("host.script", *_EVALUATES),
    ),
    Fault(
        "thread",
        ("threading.Thread(target=watch, daemon=True).start()",),
        BESIDE,
        per_ms=20_000,
        setup=(
            "def watch():",
            "    while True:",
            "        total = sum(v * v % 7 for v in range({n}))",
            "        time.sleep(0.004)",
        ),
        whom=("first", "last", "half"),
        is_steady=True,
    ),
    Fault(
        "checkpoint",
        ("torch.save({'net': core.state_dict(), 'more': more}, f'{folder}/state{rank}.pt')",),
        ("after", "callback"),
        per_ms=0.6,
        setup=("more = torch.zeros({n}, 262_144)",),
        on_ranks=_SAVES,
        of_all=_SAVES,
    ),
    Fault(
        "bigger batch",
        ("x, y = x.repeat({n}, 1), y.repeat({n})",),
        ("fed",),
        per_ms=0.1,
        on_ranks=("straggler.imbalance",),
        whom=("first", "last", "half"),
        is_steady=True,
        is_inline=True,
    ),
    Fault(
        "longer sequence",
        ("x = x[:, None].repeat(1, {n}, 1)",),
        ("fed",),
        per_ms=0.1,
        on_ranks=("straggler.imbalance",),
        whom=("first", "last", "half"),
        is_steady=True,
        is_inline=True,
    ),
    Fault(
        "worker start",
        ("options = {'num_workers': 2, 'worker_init_fn': begin}",),
        ("workers",),
        setup=("def begin(number):", "    time.sleep({n} / 1000)"),
        is_steady=True,
        is_inline=True,
    ),
    Fault(
        "bucket size",
        ("options['bucket_cap_mb'] = 0.001",),
        ("wrapped",),
        whom=("all",),
        of_all=_MEETS,
        is_steady=True,
        is_inline=True,
    ),
    Fault(
        "more layers",
        ("for _ in range({n}):", "    x = torch.tanh(x @ self.lift)"),
        ("forward",),
        per_ms=2,
        whom=("first", "last", "half", "turns"),
        is_inline=True,
    ),
    Fault("barrier", ("for _ in range({n}):", "    dist.barrier()"), IN_LOOP, per_ms=2, whom=("all",), of_all=_MEETS),
    Fault(
        "object gather",
        ("found = [None] * world", "for _ in range({n}):", "    dist.all_gather_object(found, {'step': len(ticks)})"),
        ("between", "after", "callback"),
        per_ms=1.0,
        whom=("all",),
        of_all=_MEETS,
    ),
    Fault(
        "redundant all_reduce",
        ("for _ in range({n}):", "    dist.all_reduce(torch.ones(16, WIDTH))"),
        ("between", "after"),
        per_ms=2,
        whom=("all",),
        of_all=_MEETS,
    ),
)
FAULTS = {fault.name: fault for fault in _EVERY}
