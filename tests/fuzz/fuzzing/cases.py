"""A case: which seed, which mutation, which number; everything else follows from its name."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from random import Random

from fuzzing.mutations import AS_IT_IS, FAMILIES, MUTATIONS, texts
from fuzzing.seeds import all_seeds, kept_inputs, of_repository, seed
from fuzzing.tree import Tree, files, unpacked

CACHE = "cache_"  # mutations of what an analysis has kept: they are made between two analyses
JSON = ("analyze", "{target}", "--format", "json")
# How often each command is tried; the JSON report is what most can be said of.
COMMANDS: tuple[tuple[int, tuple[str, ...]], ...] = (
    *((52, JSON), (8, ("analyze", "{target}"))),
    (5, ("report", "{target}", "-o", "{out}/report.html")),
    (3, ("report", "{target}", "-o", "{out}/report.md", "--redact")),
    (4, ("export", "{target}", "-o", "{out}/trace.json")),
    (4, ("export", "{target}", "--to", "csv", "-o", "{out}/tables")),
    (2, ("export", "{target}", "--to", "parquet", "-o", "{out}/tables")),
    (4, ("compare", "{sound}", "{target}")),
    (4, ("whatif", "{target}", "--set", "compute=2")),
    (3, ("verify", "{sound}", "{target}", "--with", "compute=2")),
    *((2, ("plan", what, "{target}")) for what in ("loader", "buckets")),
)
KEPT_COMMANDS = (JSON, ("report", "{target}", "-o", "{out}/report.html"))
KEPT_NUMBERS = range(3)  # the JSON report by both decoders, the page of what one of them has read
STATUS = ("status", "{target}", "--once")
AGAIN_SHARE = 0.25  # of the JSON reports: made a second time, from the cache of the first
ONE_FILE_SHARE = 0.1  # of the cases: one file is named, not the folder
OTHERS_SHARE = 0.3  # of the cases: recordings by others, which are larger
TWICE_SHARE = 0.1  # of the cases: mutated by two mutations


@dataclass(frozen=True)
class Case:
    """One mutated input and what is done with it. `mutation` may be several, joined by "+"."""

    seed: str
    mutation: str
    number: int

    @classmethod
    def named(cls, name: str) -> "Case":
        """The case that `name` names. Raises ValueError where there is none."""
        seed_name, mutation, number = name.split("/")
        return cls(seed_name, mutation, int(number))

    @property
    def name(self) -> str:
        return f"{self.seed}/{self.mutation}/{self.number}"

    @property
    def is_native(self) -> bool:
        return self.number % 2 == 0

    @property
    def of_cache(self) -> bool:
        return self.mutation.startswith(CACHE)

    @property
    def is_kept(self) -> bool:
        """True where the input is one that failed before, unchanged."""
        return self.mutation == AS_IT_IS

    @cached_property
    def sound(self) -> Tree:
        return seed(self.seed)

    @cached_property
    def tree(self) -> Tree:
        draw, tree = Random(self.name), self.sound
        for mutation in () if self.of_cache else self.mutation.split("+"):
            if any(name.startswith("run/") for name, _ in files(tree)):  # else the one before has removed all
                tree = MUTATIONS[mutation](tree, draw)
        return tree

    def damage_cache(self, kept: Tree) -> Tree:
        return texts.MUTATIONS[self.mutation.removeprefix(CACHE)](kept, Random(self.name))

    @cached_property
    def target(self) -> str:
        """Path to analyze, below the folder of the case."""
        draw = Random(f"target {self.name}")
        mine = sorted(path for path in self.tree if path.startswith("run/"))
        if self.seed == "saved" or mine == ["run/report.json"]:
            return next((path for path in mine if path.endswith("report.json")), "run")
        return draw.choice(mine) if mine and not self.is_kept and draw.random() < ONE_FILE_SHARE else "run"

    @cached_property
    def command(self) -> tuple[str, ...]:
        """The arguments of ddprof, with places to fill in."""
        draw = Random(f"command {self.name}")
        if self.is_kept:
            return STATUS if self.seed == "found-ring" else KEPT_COMMANDS[self.number // 2]
        if self.of_cache:
            return JSON
        if "ring_field" in self.mutation or (self.seed == "captured" and draw.random() < 0.05):
            return STATUS
        weights, commands = zip(*COMMANDS, strict=True)
        return draw.choices(commands, weights)[0]

    @property
    def again(self) -> bool:
        """True where it is asked twice: the second answer comes from the cache."""
        if self.of_cache or self.command != JSON:
            return self.of_cache
        return self.is_kept or Random(f"again {self.name}").random() < AGAIN_SHARE


def drawn(count: int, start: int, is_everywhere: bool = False) -> Iterator[Case]:
    """`count` cases, numbered from `start`. `is_everywhere`: only of seeds that every checkout has."""
    ours = sorted(of_repository())
    others = [] if is_everywhere else sorted(set(all_seeds()) - set(ours))
    for number in range(start, start + count):
        draw = Random(number)
        yield _drawn(number, draw.choice(others if others and draw.random() < OTHERS_SHARE else ours))


def kept() -> list[Case]:
    """The inputs that failed before, each read by both decoders."""
    return [Case(name, AS_IT_IS, number) for name in kept_inputs() for number in KEPT_NUMBERS]


@cache
def _families(name: str) -> dict[str, int]:
    """Number of tries of each family of mutations on a seed; none for families without anything to change in it."""
    contents = [unpacked(content) for _, content in files(seed(name))]
    is_json = any(content[:1] in (b"{", b"[") for content in contents)
    wanted = {"texts": 5, "archives": 1, "places": 2, "cache": 1}
    wanted |= {"values": 6, "events": 4, "headers": 2} if is_json else {}
    for family, start in (("databases", b"SQLite "), ("pickles", b"\x80\x04"), ("rings", b"DDPROFR")):
        wanted |= {family: 2 if is_json else 8} if any(content.startswith(start) for content in contents) else {}
    return wanted


def _drawn(number: int, name: str) -> Case:
    draw = Random(f"{name} {number}")
    families, weights = zip(*_families(name).items(), strict=True)
    chosen = []
    for _ in range(2 if draw.random() < TWICE_SHARE else 1):
        family = draw.choices(families, weights)[0]
        if family == "cache":
            return Case(name, CACHE + draw.choice(sorted(texts.MUTATIONS)), number)
        chosen.append(draw.choice(sorted(FAMILIES[family])))
    return Case(name, "+".join(chosen), number)
