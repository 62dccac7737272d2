"""Each check names its mistake, and is silent on the twin that makes none."""

from typing import Any

import pytest
from training.jobs import held, job, said

from ddprof.analyzers.catalogue import page
from ddprof.analyzers.summarise import training_of
from ddprof.analyzers.training.catalogue import training_checks

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
    (remark,) = said("unequal_data", job(trained(52, 520), trained(40, 400)))
    assert remark.summary == "rank 1 trained on less data: 40 steps, others up to 52"
    assert (remark.ranks, remark.severity) == ((1,), "warning")


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
