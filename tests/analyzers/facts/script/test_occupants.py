"""Functions that prepare data, save or evaluate are host spans of their causes; those that train are not."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from kineto_run import Script, held_ms

from ddprof.analyzers.facts.model import RankFacts

MODULE = "torch/nn/modules/module.py(1773): _wrapped_call_impl"
LOADER = "torch/utils/data/dataloader.py(733): __next__"
FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
BACKWARD = "torch/_tensor.py(570): backward"


def steps_with(folder: Path, function: str, trains: bool = False, in_model: bool = False) -> RankFacts:
    """Three steps, in each 5 ms inside a function while nothing is launched, then a forward pass."""
    script = Script()
    for _ in script.steps(3):
        with script.frame(MODULE) if in_model else nullcontext(), script.frame(function):
            script.idle(5_000.0)
            if trains:
                with script.frame(BACKWARD):
                    script.host("autograd::engine", 300.0)
        with script.frame(MODULE):
            script.launch(dur_us=100.0, times=10)
        script.synchronise()
    return script.facts(folder)


@pytest.mark.parametrize(
    ("cause", "function"),
    [
        *(("dataloader", f"train.py(40): {name}") for name in ("make_batch", "preprocess")),
        *(("dataloader", "data/prepare.py(12): tokenize_texts"), ("dataloader", "PIL/Image.py(2200): resize")),
        ("dataloader", "transformers/pipelines/video_classification.py(129): preprocess"),
        ("dataloader", "torchvision/transforms/functional.py(10): normalize"),
        *(("checkpoint", f"train.py(88): {name}") for name in ("evaluate", "save_checkpoint", "log_metrics")),
        *(("checkpoint", "engine.py(5): validate_one_epoch"), ("checkpoint", "torch/serialization.py(943): save")),
    ],
)
def test_preparing_saving_evaluating_and_logging_are_of_their_causes(tmp_path: Path, cause: str, function: str) -> None:
    facts = steps_with(tmp_path, function)
    assert held_ms(facts, cause) == pytest.approx(15.0)
    assert cause != "dataloader" or facts.strings[int(facts.spans_of(cause)["name"][0])].endswith("()")


@pytest.mark.parametrize(
    ("function", "trains"),
    [
        *((f"train.py(88): {name}", False) for name in ("update_ema", "batch_metrics", "create_model_inputs_log")),
        *((f"train.py(88): {name}", False) for name in ("evaluate_every_step_and_train", "checkpoint_sequential")),
        *(("torch/utils/checkpoint.py(488): checkpoint", False), ("train.py(88): main", False)),
        ("train.py(88): evaluate", True),  # what runs a backward pass trains
        ("train.py(40): make_batch", True),
    ],
)
def test_other_functions_occupy_nothing(tmp_path: Path, function: str, trains: bool) -> None:
    facts = steps_with(tmp_path, function, trains)
    assert held_ms(facts, "dataloader") == held_ms(facts, "checkpoint") == 0.0


def test_neither_a_models_own_forward_nor_a_loop_over_steps_is_an_occupant(tmp_path: Path) -> None:
    assert held_ms(steps_with(tmp_path, "model.py(40): tokenize", in_model=True), "dataloader") == 0.0
    script = Script()
    with script.frame("train.py(3): evaluate"):
        for _ in script.steps(3):
            script.idle(5_000.0)
            script.launch(dur_us=100.0)
            script.synchronise()
    assert held_ms(script.facts(tmp_path), "checkpoint") == 0.0


@pytest.mark.parametrize(
    ("outer", "annotated", "is_saved"),
    [(LOADER, "ddprof::checkpoint", False), ("train.py(20): resume", "train", True)],
)
def test_what_a_loader_reads_is_its_own(tmp_path: Path, outer: str, annotated: str, is_saved: bool) -> None:
    """A sample that was pickled is read by torch.load, by its frame and by the range that the capture leaves."""
    script = Script()
    for _ in script.steps(3):
        load = script.frame("torch/serialization.py(1300): load")
        with script.frame(outer), script.frame("data.py(9): __getitem__"), load:
            script.host(FETCH, 5_000.0, "user_annotation")
            script.add(annotated, "user_annotation", script.now_us - 4_000.0, 3_000.0, 1, {})
        with script.frame(MODULE):
            script.launch(dur_us=100.0)
        script.synchronise()
    assert (held_ms(script.facts(tmp_path), "checkpoint") > 0.0) is is_saved


def test_a_fetch_to_evaluate_is_no_wait_for_a_batch_and_an_evaluation_ends_where_it_is_recorded(tmp_path: Path) -> None:
    script = Script()  # the capture names a fetch around the range of torch's own; a sample lasts until the next one
    for _ in script.steps(3):
        with script.frame("ddprof::evaluation_data", "user_annotation"):
            script.host(FETCH, 5_000.0, "user_annotation")
        script.host(FETCH, 1_000.0, "user_annotation")
        script.add("ddprof::evaluation", "user_annotation", script.now_us, 5_000.0, 1, {})
        with script.frame("train.py(3): evaluate"):
            script.idle(7_000.0)
        script.launch(dur_us=100.0)
        script.synchronise()
    facts = script.facts(tmp_path)
    assert (held_ms(facts, "dataloader"), held_ms(facts, "checkpoint")) == pytest.approx((3.0, 45.0), abs=0.1)


def test_a_recorded_phase_is_no_preparation_whatever_a_sample_stands_for(tmp_path: Path) -> None:
    script = Script()
    for _ in script.steps(3):
        script.add("ddprof::optimizer", "user_annotation", script.now_us, 2_000.0, 1, {})
        with script.frame("train.py(40): make_batch"):
            script.idle(5_000.0)
        script.launch(dur_us=100.0)
        script.synchronise()
    assert held_ms(script.facts(tmp_path), "dataloader") == pytest.approx(9.0, abs=0.1)
