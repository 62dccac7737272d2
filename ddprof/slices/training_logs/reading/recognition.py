"""Recognition of text logs of training jobs by what their lines say."""

from __future__ import annotations

import re

from ddprof.slices.training_logs.reading.lines import BAR_RATE, OF_FRAMEWORKS, broken, of_loops, plain, wanted
from ddprof.slices.training_logs.reading.loops import LoopLines
from ddprof.slices.training_logs.reading.timers import ADVANCED

_MARKS = re.compile(
    r"comm op: [^|\r\n]{1,200}? \| time \(ms\): [\d.]{1,20} \| msg size: "
    r"|Comm\. Op\s+Message Size\s+Count\s+Total "
    r"|times? across ranks \(ms\):[ \r\n]?"
    r"|elapsed[ _]time[ _]per[ _]iteration[ _]\(?m?s\)?\s*[:=]\s*\d"
    r"|train_step_timing in s[:=]\s*\d"
    r"|time \(ms\) \| (?:forward|fwd|optimizer|model-and|pipe|batch_input)[\w-]*: "
    r"|using world size: \d{1,7}, data-parallel size: \d"
    r"|iter time \(s\): [\d.]{1,20} samples/sec:"
    r"|(?:global_step=|\s\d{1,9}/)\d{1,12}, (?:RunningAvg)?SamplesPerSec=\d"
    r"|\bstep:\s{1,12}\d{1,12}\s.{0,200}?\btps: \d"
    r"|'train_runtime': '?\d|'loss': '?\d.{0,400}'epoch': '?\d|Total optimization steps = \d"
    r"|\bstep\s{1,12}\d{1,12}/\d{1,12} \|.{0,160}? ms \|.{0,80}? tok/s"
    r"|slurmstepd\S{0,80}: error: \*{3} (?:JOB|STEP) \d"
    r"|completed step: \d{1,12}, seconds: \d| ups[= ]\d[\d.]{0,20}(?:,| \|).{0,120}? num_updates[= ]\d"
    r"|\bstep:\d{1,12} - .{0,8000}?timing_s/step:\d"
    r"|NCCL INFO Channel \d{1,4}(?:/\d{1,4})? : \d{1,7}\[[^\]]{0,16}\] -> |NCCL WARN "
    r'|:::MLL(?:OG)? .{0,400}?"metadata": '
    r"|^\|\s{1,20}time_elapsed\s{1,40}\| \d|Total step time: \d|^(?:fwd|iter) latency: {1,80}\d"
    rf"|{ADVANCED.pattern}"
    r"|\bAction\s{1,200}\|\s{1,8}Mean duration \(s\)"
    r"|(?:\d ?s \(\d[\d.]{0,6} ?%\), [A-Za-z][\w -]{0,40}: \d[\d.]{0,12} ?){2}"
    rf"|(?:^|\s)Epoch \d{{1,7}}[:/ ].{{0,320}}?\d/[\d?]{{1,12}} .{{0,40}}?\d ?(?:{BAR_RATE})"
)
# What is printed at the start by programs that print thousands of lines before the first number.
_STARTS = re.compile(rb"\[INFO\] \[(?:logging|config)\.py:\d{1,5}:(?:log_dist|print)\]")
_BAR = re.compile(rf"\d/\d{{1,12}} \[\d[\d:]{{1,12}}<[^\]\n]{{1,40}}?(?:{BAR_RATE})".encode())
_OF_NUMBERS = re.compile(rb"[:=] ?-?\d{1,9}\.\d[^\n|]{0,20}\d%\|")  # losses, whatever their names, before a bar
_EPOCH = re.compile(rb"\bepochs?\W{0,3}\d")
_FAILED, _OF_TRAINING = (
    (
        b"Traceback (most recent call last)",
        b"ut of memory",
        b"Watchdog caught",
        *(b"issing ranks:", b"talled ranks:", b"Timeout at NCCL work: ", b"watchdog got stuck for "),
        *(b" by GPU node-", b" execute failed, reason=[", b"Error executing job with overrides"),
        b"[ready ranks:",
        b" CANCELLED AT ",
        b".py: error: ",
        b"\nExited with exit code ",
        b"` is detected by the operating system",
    ),
    (
        *(
            b"torch",
            b"processgroupnccl",
            b"deepspeed",
            b"megatron",
            b"lightning",
            b"transformers",
            b"wandb",
            b"jax",
            b"horovod",
            b"npustream",
        ),
        *(b"tensorflow", b"paddle", b"mxnet", b"keras"),
    ),
)


def is_of_training(text: bytes) -> bool:
    """True for text with lines of a training, or of what it ends in."""
    text = broken(text)
    if any(_MARKS.search(plain(line).text) for line in wanted(text, words=OF_FRAMEWORKS)):
        return True
    loop = LoopLines()
    for line in map(plain, of_loops(text, lambda: loop.reads_on)):
        loop.take(line)
        if loop.is_training:
            return True
    if loop.epochs.are_there:
        return True
    if b"[INFO] [" in text and _STARTS.search(text):
        return True
    lower = text.lower()
    is_of_training = any(word in lower for word in _OF_TRAINING)
    if (b"loss" in lower or _EPOCH.search(lower) or (is_of_training and _OF_NUMBERS.search(text))) and _BAR.search(
        text
    ):
        return True
    return is_of_training and any(word in text for word in _FAILED)
