"""Script work that occupies the host: data preparation outside a loader, saving, evaluating, logging.

Such calls are recognised by function name and become host spans like a loader's fetch.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import HOST_SPANS, occupied
from ddprof.analyzers.facts.names import matches
from ddprof.analyzers.facts.script.tree import CallTree, call_tree, spans_of
from ddprof.intervals import EMPTY, Intervals
from ddprof.model import RankTrace
from ddprof.tables import Array, Table, concat

# Functions of the script that make a batch, as people name them; of what they measure of batches it is no preparation.
_PREPARES = re.compile(
    r"pre_?process|tokeni[sz]e|collat|augment|read_(?:batch|sample|image|video|audio|data|file)|load_(?:batch|sample|image"
    r"|video|audio|data|file)|(?:get|next|make|fetch|build|prepare|create|generate|sample)_?\w*(?:batch|sample|input|data|image"
    r"|example|feature|video|audio)|decode_(?:image|video|audio|jpeg)|image_processor|feature_extract|data_?prep|pad_(?:batch|seq)",
    re.IGNORECASE,
)
_NOT_DATA = re.compile(r"metric|loss|log|plot|save|eval|predict|model|parallel|dataset_size", re.IGNORECASE)
# Libraries that do nothing else than read, decode, tokenize and transform samples.
_DATA_LIBRARY = re.compile(
    r"^(?:PIL|cv2|decord|av|librosa|soundfile|audioread|pydub|albumentations|imageio|skimage|webdataset|datasets|tokenizers"
    r"|tiktoken|sentencepiece|nltk|spacy|lmdb|h5py|zarr|petastorm|torchvision/(?:transforms|io|datasets)|torchaudio"
    r"|transformers/(?:image_\w+|tokenization_\w+|feature_extraction\w*|video_\w+|models/\w+/(?:image_process|tokenization"
    r"|feature_extraction|processing|video_process)\w*))(?:/|\.py| )",
)
_DATA_METHOD = re.compile(r"^transformers/pipelines/\S+ preprocess$|^<.*(?:ImagingDecoder|Tokenizer)")
_HANDED_OVER = re.compile(r"^(?:queue|multiprocessing/queues)\.py get$")
LOADER_FETCH = re.compile(r"^torch/utils/data/dataloader\.py __next__$")
# Functions of the script that save, evaluate or log, as people name them.
_SAVES = re.compile(
    r"(?:^|_)(?:evaluat(?:e|ion)|eval|validat(?:e|ion)|val)(?:_(?:one|epoch|loop|step|model|data|dataset|set|loss|metrics"
    r"|perplexity|accuracy))*$|(?:^|_)(?:save|load|write|dump|store)_?(?:checkpoint|ckpt|model|state|state_dict|snapshot"
    r"|weights)|(?:^|_)(?:checkpoint|ckpt|snapshot)$|(?:^|_)log_(?:metrics|scalars|images|histograms|to_\w+)|write_(?:logs?|summary)",
    re.IGNORECASE,
)
# What saves, evaluates or logs in libraries; other functions of theirs that are named so do something else.
_SAVING_LIBRARY = re.compile(
    r"^(?:torch/serialization\.py (?:save|load)$|torch/distributed/checkpoint/|safetensors/|wandb/|mlflow/"
    r"|tensorboardX?/|torch/utils/tensorboard/|transformers/trainer\.py (?:evaluate|_save\w*|save_model)$"
    r"|accelerate/checkpointing\.py)"
)


def with_named_frames(trace: RankTrace) -> RankTrace:
    """The trace with the labels of host-occupying frames added to its strings, as names of host spans."""
    if not len(trace.script_stacks):
        return trace
    tree = call_tree(trace)
    named = _data_frames(tree) | saving_frames(tree) | tree.matching(_HANDED_OVER) | tree.is_user
    wanted = np.flatnonzero(named).tolist()
    return replace(trace, strings=(*trace.strings, *(tree.words(frame) for frame in wanted)))


def script_occupants(
    trace: RankTrace, threads: Array, marks_ns: Array, evaluated: Intervals, in_phase: Intervals
) -> Table:
    """HOST_SPANS of causes "dataloader" and "checkpoint" from the Python frames of some threads (host tracks).

    `trace`: as `with_named_frames` gives it. `marks_ns`: boundaries of the steps on the host. `evaluated`: evaluations,
    `in_phase`: passes and optimizer steps, as recorded: samples do not tell when a call ended. A call that reaches over
    a mark, or that runs a backward pass, trains, whatever its name. Data that a model's own forward pass prepares is
    part of the model.
    """
    spans = trace.script_spans.take(np.isin(trace.script_spans["track"], threads))
    if not len(spans):
        return HOST_SPANS.empty()
    tree = call_tree(trace)
    number = {text: row for row, text in enumerate(trace.strings)}
    trains = spans_of(spans, tree.is_backward)
    tables = []
    for cause, outermost, is_elsewhere in (
        ("dataloader", tree.around(_data_frames(tree)), tree.in_phase),
        ("checkpoint", saving_around(tree), np.zeros(len(tree), bool)),
    ):
        elsewhere = intervals.merge(spans_of(spans, is_elsewhere), in_phase if cause == "dataloader" else EMPTY)
        frame = np.where(outermost >= 0, tree.frame[np.maximum(outermost, 0)], -1)[spans["stack"]]
        for what in np.unique(frame[frame >= 0]).tolist():
            for thread in np.unique(spans["track"][frame == what]).tolist():
                inside = spans.take((frame == what) & (spans["track"] == thread))
                calls = _within(evaluated, _without_training(intervals.union(*inside.bounds), trains, marks_ns))
                tables.append(occupied(cause, intervals.subtract(calls, elsewhere), thread, number[tree.words(what)]))
    return concat(HOST_SPANS, tables).ordered()


def _within(evaluated: Intervals, calls: Intervals) -> Intervals:
    """Calls, those that begin in an evaluation no longer than it: what a sample saw lasts until the next one."""
    start, end = calls
    around = intervals.row_at(evaluated, start)
    return start, np.where(around >= 0, np.minimum(end, np.append(evaluated[1], 0)[around]), end)


def _data_frames(tree: CallTree) -> Array:
    function, is_user = tree.frames["function"].tolist(), tree.is_user.tolist()
    is_preparing = [
        user and _PREPARES.search(name) is not None and _NOT_DATA.search(name) is None
        for name, user in zip(function, is_user, strict=True)
    ]
    return np.array(is_preparing, bool) | tree.matching(_DATA_LIBRARY) | tree.matching(_DATA_METHOD)


def saving_frames(tree: CallTree) -> Array:
    """Mask of frames that save, evaluate or log, by row of the frames table."""
    named = matches(_SAVES, tree.frames["function"].tolist()) & tree.is_user
    return np.asarray(named | tree.matching(_SAVING_LIBRARY))


def saving_around(tree: CallTree) -> Array:
    """The outermost saving, evaluating or logging stack (row) around each stack; -1 for none. Shape (stacks,).

    What a loader's fetch calls reads data, whatever its name: a pickled sample is loaded by torch.load.
    """
    outermost = tree.around(saving_frames(tree))
    is_fetched = tree.within(tree.matching(LOADER_FETCH))[np.maximum(outermost, 0)]
    return np.where(is_fetched, -1, outermost)


def takes_from_queue(tree: CallTree) -> Array:
    """Mask of stacks that wait for what a thread, or a process, of the script makes; a loader's workers are its own."""
    return np.asarray(tree.within(tree.matching(_HANDED_OVER)) & ~tree.within(tree.matching(LOADER_FETCH)))


def queue_frames(tree: CallTree) -> list[str]:
    """Frames of such waits, in words."""
    return [tree.words(frame) for frame in np.flatnonzero(tree.matching(_HANDED_OVER)).tolist()]


def _without_training(calls: Intervals, trains: Intervals, marks_ns: Array) -> Intervals:
    """Calls that cross no step mark and run no backward pass."""
    start, end = calls
    marks = np.searchsorted(marks_ns, end, side="left") - np.searchsorted(marks_ns, start, side="right")
    keep = (marks <= 0) & (intervals.overlap(trains, start, end) == 0)
    return start[keep], end[keep]
