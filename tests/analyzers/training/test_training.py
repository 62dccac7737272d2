"""Each check names its mistake, and is silent on the twin that makes none; ranks that should hold equal copies."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from captured import sidecar_of

from ddprof.analyzers.catalogue import page, training_checks
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.summarise import training_of
from ddprof.findings import Remark

STEPS = 5


def job(*sidecars: dict[str, Any], sums: Sequence[int] = (), ops: Sequence[str] = ()) -> Any:
    """One rank per content of a sidecar; `sums`: bytes that all ranks sum in every step; `ops`: what they call too."""
    table = [(OP_CODE["all_reduce"], size) for size in sums] * STEPS + [(OP_CODE[op], 64) for op in ops]
    op, size_bytes = (np.array([row[part] for row in table], np.int64) for part in (0, 1))
    instances = {"op": op.astype(np.uint8), "group": np.zeros(len(table), np.int64), "size_bytes": size_bytes}
    ranks = tuple(SimpleNamespace(sidecar=sidecar_of(s), steps=[None] * STEPS) for s in sidecars)
    groups, count = {"size": np.array([len(ranks)]), "role": ["dp"]}, len(ranks)
    ids = tuple(range(count))
    return SimpleNamespace(rank_ids=ids, ranks=ranks, world_size=count, groups=groups, instances=instances)


def said(name: str, job: Any) -> list[Remark]:
    return list(training_checks()[f"training.{name}"].detect(job))


def held(checksums: Sequence[str], kind: str = "ddp", step: int = 9, ranks: Sequence[int] = (0, 1), **more: Any) -> Any:
    """A sidecar of a rank that held tensors of 64, 128, ... bytes with these checksums after a step."""
    names = [f"layer{at}.weight" for at in range(len(checksums))]
    of_ranks = {"class": "Net", "kind": kind, "ranks": list(ranks) if kind == "ddp" else []}
    sizes_bytes = [64 << at for at in range(len(checksums))]
    tensors = {"names": names, "sizes_bytes": sizes_bytes, "values": [0.5] * len(checksums), "buffers": []}
    tensors["checksums"] = "".join(f"{sum_:>08}" for sum_ in checksums)
    line = {"file": "train.py", "line": 7, "function": "main"}
    return {"replicas": {"step": step, "models": [{**of_ranks, **tensors, "line": line, **more}]}}


LINE = {"file": "train.py", "line": 30, "function": "main"}


def test_every_check_has_a_page_with_all_parts() -> None:
    parts = ("What it detects:", "Why it matters:", "How to fix:", "Limits:", "Sources:")
    assert [(name, part) for name in training_checks() for part in parts if part not in page(name)] == []


def norms(samples: int, kind: str = "ddp", layers: int = 3) -> dict[str, Any]:
    batches = [{"step": step, "batches": 2, "samples": 2 * samples, "elements": 10} for step in range(4)]
    found = [{"class": "Net", "kind": kind, "layers": layers, "first": "bn1"}] if layers else []
    return {"batch_norms": found, "batches": batches}


def test_batch_norm_of_a_small_batch() -> None:
    (remark,) = said("batch_norm", job(norms(4), norms(4)))
    assert "4 samples per rank" in remark.summary and "3 layers" in remark.summary and "2 ranks" in remark.summary


def passes(repeated: int, trains: bool = True) -> dict[str, Any]:
    return {"sampler_passes": [{"begun": 4, "ended": 3, "repeated": repeated, "trains": trains, "line": LINE}]}


def test_epochs_in_the_same_order() -> None:
    (remark,) = said("set_epoch", job(passes(3), passes(3)))
    assert remark.summary.startswith("every epoch comes") and remark.ranks == ()
    assert remark.evidence[-1].text == "iterated at train.py:30 main()"
    (remark,) = said("set_epoch", job(passes(0), passes(1)))
    assert remark.summary.startswith("1 of 4 passes") and remark.ranks == (1,)


def trained(steps: int, last_us: int, **more: Any) -> dict[str, Any]:
    """A rank that held a DDP model and ended its last step then; each took 10 us."""
    begun = [1000 * last_us - 10_000 * (steps - number) for number in range(steps)]
    timed = [{"index": n, "start_ns": start_ns, "end_ns": start_ns + 10_000} for n, start_ns in enumerate(begun)]
    return {"models": [{"kind": "ddp"}], "state": "exit", "steps_total": steps, "steps": timed, **more}


def test_ranks_that_run_out_of_data() -> None:
    short = trained(40, 400)
    (remark,) = said("unequal_data", job(trained(52, 520), short))
    short["steps"][-1]["end_ns"] = 520_000  # its last step lasts until the others have ended
    assert said("unequal_data", job(trained(52, 520), short)) == [remark]
    assert remark.summary == "rank 1 trained on less data: 40 steps, others up to 52"
    assert (remark.ranks, remark.severity) == ((1,), "warning")


def state(updates: int = 5, unchanged: bool | None = True) -> dict[str, Any]:
    return {"replicas": {"step": 9, "updates": updates, "unchanged": unchanged}}


def left(steps: int = 40) -> dict[str, Any]:
    return {
        "left_in_evaluation": {"class": "Net", "at": "train.py:20", "step": 20, "steps": steps, "layers": ["Dropout"]}
    }


def kept(watched: int, of_them: int) -> dict[str, Any]:
    return {"gradients": [{"optimizer": "SGD", "watched_steps": watched, "kept_steps": of_them}]}


def test_nothing_is_learnt_a_model_trains_in_evaluation_mode_and_gradients_are_kept() -> None:
    (remark,) = said("gradients_kept", job(kept(3, 3), kept(3, 0)))
    assert "gradients of SGD are never zeroed" in remark.summary and remark.ranks == (0,)
    (remark,) = said("unchanged", job(state(), state()))
    assert "no parameter changed in 5 optimizer steps" in remark.summary and remark.severity == "critical"
    (remark,) = said("left_in_evaluation", job(left(), {}))
    assert "Net trains in evaluation mode from step 20 on" in remark.summary and remark.ranks == (0,)


def gradients(missing: dict[str, list[int]], never: bool = True, stateful: bool = True) -> dict[str, Any]:
    listed = [{"name": n, "elements": 1000, "steps": s, "never": never} for n, s in missing.items()]
    use = {"optimizer": "AdamW", "line": LINE, "steps": [5, 6], "followed": 1, "parameters": 8, "missing": listed}
    return {**held("a" * 4), "gradients": [{**use, "stateful": stateful}]}


def test_parameters_that_no_rank_trains() -> None:
    aux = {"aux.weight": [5, 6], "aux.bias": [5, 6]}
    (remark,) = said("unused_parameters", job(gradients(aux), gradients(aux)))
    assert "2 of 8 parameter tensors of AdamW have a gradient in no step so far" in remark.summary
    texts = ["2 000 numbers that are never trained", "AdamW made at train.py:30 main()"]
    assert [e.text for e in remark.evidence] == texts
    (remark,) = said("unused_parameters", job(gradients(aux, stateful=False)))
    assert "in none of 3 steps" in remark.summary


def uneven(**missing: list[int]) -> dict[str, Any]:
    return gradients({f"{name}.weight": steps for name, steps in missing.items()})


def test_gradients_on_some_ranks_only_of_models_that_ranks_share() -> None:
    (remark,) = said("gradients_missing", job(uneven(layer1=[5, 6]), uneven()))
    assert remark.summary == "1 parameter tensor had a gradient on some ranks only: layer1.weight"
    assert remark.ranks == (0,) and remark.evidence[0].text == "step 5: none for layer1.weight on rank 0"
    (remark,) = said("gradients_missing", job(uneven(layer1=[5]), uneven(layer2=[6])))
    assert remark.ranks == ()


def software(torch: str = "2.9.0", **settings: str) -> dict[str, Any]:
    return {"versions": {"torch": torch, "nccl": None}, "communication_environment": settings}


def test_ranks_of_different_software() -> None:
    (remark,) = said("environment_differs", job(software(), software(), software("2.8.0")))
    assert remark.ranks == (2,) and remark.evidence[0].text == "torch: 2.9.0 on ranks 0, 1, 2.8.0 on rank 2"
    (remark,) = said("environment_differs", job(software(NCCL_ALGO="Ring"), software()))
    assert "NCCL_ALGO" in remark.summary


UNUSED, LATER = gradients({"a": [5, 6]}), gradients({"a": [5, 6]}, never=False)
WITHOUT_THE_MISTAKE: dict[str, tuple[list[dict[str, Any]], ...]] = {
    "batch_norm": (
        *([norms(32)] * 2, [norms(4, layers=0)] * 2),
        [norms(4)],  # one rank has nobody to synchronise with
        [norms(4, kind="module")] * 2,  # ranks that train models of their own
        [{"batch_norms": norms(4)["batch_norms"]}] * 2,  # batches were not recorded
    ),
    "set_epoch": ([passes(0)] * 2, [passes(3, trains=False), {}]),
    "unequal_data": (
        [trained(52, 520), trained(51, 510)],  # what is left of a division
        [trained(52, 520), trained(40, 520)],  # both end together: the first trains something else as well
        [trained(52, 520), trained(40, 400, end={"error": {"type": "ValueError"}})],
        *([trained(52, 520), trained(40, 400, **more)] for more in ({"state": "killed"}, {"models": []})),
        [trained(52, 520), {}],
    ),
    "unchanged": ([state(), state(unchanged=False)], [state(unchanged=None)] * 2, [state(1)] * 2, [state(), {}]),
    "gradients_kept": ([kept(3, 2), kept(1, 1)], [kept(0, 0), {}]),
    "unused_parameters": (
        *([gradients({})] * 2, [UNUSED, gradients({})], [UNUSED, gradients({"b": [5, 6]})]),  # used on the other rank
        [LATER, LATER],  # or before
        [UNUSED, {}],  # nothing was recorded on the other rank
    ),
    "gradients_missing": (
        [uneven(expert=[5, 6]), uneven()],  # in no model that ranks share
        [uneven(layer1=[5, 6])] * 2,
    ),
    "environment_differs": (
        [software(NCCL_SOCKET_IFNAME="eth0"), software()],
        [software(), {}],  # not captured is not different
    ),
}


@pytest.mark.parametrize("name", WITHOUT_THE_MISTAKE)
def test_twins_without_the_mistake_are_not_remarked(name: str) -> None:
    assert [sidecars for sidecars in WITHOUT_THE_MISTAKE[name] if said(name, job(*sidecars)) != []] == []


def test_samples_and_learning_rate() -> None:
    rank = {**norms(16), "optimizer": {"class": "AdamW", "learning_rates": [1e-4, 3e-4, None]}}
    found = training_of(job(rank, rank))
    assert (found.samples_per_rank, found.samples_per_step) == (32, 64)
    assert (found.learning_rate, found.optimizer) == (3e-4, "AdamW")
    assert training_of(job({**rank, "parallelism": ["tp"]}, rank)).samples_per_step is None
    assert training_of(job({}, {})).samples_per_step is None


def test_equal_copies_are_silent_the_odd_rank_is_named_and_rounding_is_called_so() -> None:
    for name in ("replicas_differ", "buffers_differ"):
        assert said(name, job(held("ab"), held("ab"))) == []
    (remark,) = said("replicas_differ", job(*(held(sums, ranks=(0, 1, 2, 3)) for sums in ("ab", "ab", "xb", "ab"))))
    assert remark.ranks == (2,)
    (remark,) = said("replicas_differ", job(held("a", values=[0.5]), held("b", values=[0.5000001])))
    assert "in their last bits" in remark.summary
    (remark,) = said("replicas_differ", job(held("a", values=[0.5]), held("b", values=[0.6])))
    assert "in their last bits" not in remark.summary


def test_a_differing_tensor_of_a_wrapped_model_is_named_with_its_line() -> None:
    (remark,) = said("replicas_differ", job(held("ab", values=[0.5, 0.25]), held("ac", values=[0.5, -0.25])))
    assert "Net" in remark.summary and "1 of 2 tensors" in remark.summary
    assert [evidence.text for evidence in remark.evidence] == [
        "after step 9: layer1.weight differ",
        "layer1.weight begins with 0.25 on rank 0, -0.25 on rank 1",
        "wrapped at train.py:7 main()",
    ]
    assert remark.ranks == ()  # of two ranks neither is the odd one


def test_copies_that_part_later_or_are_nan_are_told_as_of_the_first_time_with_the_rates() -> None:
    def rank(later: str, rate: float, step: int = 22, **more: Any) -> dict[str, Any]:
        after = {**held(later, step=step)["replicas"], "rates": [0.1, rate]}
        return {**held("ab", **more), "later_replicas": after}

    (remark,) = said("replicas_differ", job(rank("ab", 0.1), rank("ac", 0.05)))
    texts = [evidence.text for evidence in remark.evidence]
    assert texts[:2] == ["after step 22: layer1.weight differ", "the learning rate is 0.1 on rank 0, 0.05 on rank 1"]
    assert "learning rate" in remark.fixes[0].setting
    assert said("replicas_differ", job(rank("ab", 0.1), rank("ac", 0.1, step=44))) == []
    (remark,) = said("nan_parameters", job(rank("ab", 0.1), rank("ab", 0.1, nan=[1])))
    assert (remark.ranks, remark.severity, remark.evidence[0].text) == ((1,), "critical", "after step 9: layer1.weight")


@pytest.mark.parametrize(
    "other",
    [
        held("ac", step=10),  # after another step
        held("ac", ranks=(1, 2)),  # a model of another group
        held("acd"),  # another model
        held(["a", "c", "d" * 7], sizes_bytes=[64, 128]),  # a damaged file
        {},
    ],
)
def test_what_is_not_comparable_is_not_compared(other: dict[str, Any]) -> None:
    assert said("replicas_differ", job(held("ab"), other)) == []


def test_models_outside_a_wrapper_are_compared_where_ranks_only_sum_gradients() -> None:
    ranks = [held(sums, kind="module") for sums in ("ab", "cd")]
    for sums in ((64, 128), (192,)):  # one by one, or all in one
        (remark,) = said("replicas_differ", job(*ranks, sums=sums))
        assert "2 of 2 tensors" in remark.summary and "broadcast" in remark.fixes[0].suggested
    for sums in ((), (64,), (32, 32)):  # an ensemble; experts that ranks own; activations of tensor parallelism
        assert said("replicas_differ", job(*ranks, sums=sums)) == []
    forgotten = [held(sums, kind="module") for sums in ("abc", "abd")]
    (remark,) = said("replicas_differ", job(*forgotten, sums=(64, 128)))
    assert "not summed, unlike the others" in remark.summary and "1 of 3 tensors" in remark.summary
    assert said("replicas_differ", job(*forgotten, sums=(64, 128), ops=("all_to_all",))) == []

    def rank(sums: str) -> dict[str, Any]:
        inside, outside = held("a"), held(sums, kind="module")
        return {"replicas": {"step": 9, "models": [*inside["replicas"]["models"], *outside["replicas"]["models"]]}}

    (remark,) = said("replicas_differ", job(rank("b"), rank("c"), ops=("all_reduce",)))
    assert "outside the DistributedDataParallel model" in remark.summary
    assert said("replicas_differ", job(rank("b"), rank("c"), ops=("all_to_all",))) == []


def test_buffers_differ_only_where_nothing_keeps_them_equal() -> None:
    def ranks(broadcast: bool) -> Any:
        return job(*(held(sums, buffers=[1], broadcast_buffers=broadcast) for sums in ("ab", "ac")))

    assert said("buffers_differ", ranks(True)) == said("replicas_differ", ranks(False)) == []
    (remark,) = said("buffers_differ", ranks(False))
    assert "1 buffer of Net" in remark.summary and "broadcast_buffers=False" in remark.summary
