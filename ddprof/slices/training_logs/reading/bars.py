"""Progress bars of tqdm and rich, as drawn by Hugging Face's Trainer, Lightning and YOLO: steps done and elapsed time.

  1%|▏         | 10/1000 [00:21<35:12,  2.13s/it]
Epoch 0:  93% 1586/1702 [12:50<00:56,  2.06it/s, loss=0.158, v_num=0]
Epoch 0: |          | 12/? [00:03<00:00,  3.80it/s, v_num=0]
Epoch 1/9 ━━━━━━╸━━━━ 712/25483 0:00:20 • 0:11:35 35.65it/s v_num: 0
     74/100      2.29G     0.7503     0.7414     30        640:  66%|██████▌   | 935/1426 [03:05<01:32,  5.32it/s]

Time is whole seconds since the bar began, and the rate the mean of the last few steps. Other bars (loading shards,
evaluation) look alike: they have another label or, where nobody labels, another length than the longest of them.
"""

from __future__ import annotations

import re
from collections import defaultdict

from ddprof.slices.training_logs.reading.iterations import LoggedRecord
from ddprof.slices.training_logs.reading.lines import BAR_RATE, BAR_RATES, EVALUATION, LogLine, Stamp
from ddprof.slices.training_logs.reading.times import EPOCHS

# How far, and for how long. What is drawn and said before is looked at from there backwards: searched from the left,
# each letter of a line could begin a label.
_BAR = re.compile(
    r"(?P<n>\d{1,12})/(?P<total>\d{1,12}|\?)\s"
    r"(?:\[(?P<elapsed>\d[\d:]{1,12})<[\d:?]{1,16},|(?P<rich>\d{1,6}:\d\d:\d\d) • [\d:-]{1,16})"
    rf"\s{{0,6}}(?P<rate>\d[\d.]{{0,12}}) ?(?P<unit>{BAR_RATE})"
)
_LABEL = re.compile(
    r"(?P<label>[A-Za-z][^|%\d\[\]]{0,40}?)\s?(?P<epoch>\d{1,7})?(?:/(?P<of>\d{1,7}))?"
    r"(?: [\[(]train(?:ing)?[\])])?:?\s{0,4}$",
    re.IGNORECASE,
)
# "Training Epoch: 2/3, step 48/50 completed (loss: 1.04): 98%|...": what follows the epoch is said of it
_FIRST = re.compile(
    r"\W{0,4}(?P<label>(?:train(?:ing)?\W{1,2})?epoch)\W{0,2}(?P<epoch>\d{1,7})(?:/(?P<of>\d{1,7}))?\b(?!\.\d)",
    re.IGNORECASE,
)
_OF_TRAINING = re.compile(r"^train(?:ing)?\W+(?=epoch$)")
_DRAWN = "━╸╺ "  # of rich; tqdm draws between two strokes
_LONGEST_BAR, _LONGEST_LABEL = 300, 64
_COUNTED = re.compile(r"\s{0,9}(?P<epoch>\d{1,7})/\d{1,7}\s")  # YOLO's: epoch, memory and losses before the bar
_EPOCH, _ROW = "epoch", "row"
_LABELS = ("iteration", "iterations", "train", "training", "steps", "step")
_EPOCHS = "epochs"  # "Epoch:  33%|███▎ | 1/3 [1:10:02<...": without a number of its own a bar counts the epochs
_UNLABELLED = ""
_CUT_S = 0.5  # of a second that is not full, on average
UNNAMED = "bars without a label"
WORDS = (*BAR_RATES, "'epoch': ", "Total optimization steps", "'train_runtime'")


class BarLines:
    """Collects bars from the lines of one log."""

    def __init__(self) -> None:
        self._drawn: dict[tuple[str, str], list[LoggedRecord]] = defaultdict(list)
        # Iterations and seconds of bars that ended, those of the one that is drawn, and its epoch
        self._at: dict[tuple[str, str], tuple[int, float, int, float, int]] = {}
        self.is_of_trainer = self._is_of_lightning = False

    def take(self, line: LogLine) -> None:
        """Read the next line."""
        if "'epoch': " in line.text or "Total optimization steps" in line.text or "train_runtime" in line.text:
            self.is_of_trainer = True
        if not any(rate in line.text for rate in BAR_RATES):
            return
        self._is_of_lightning |= "v_num" in line.text
        begin = 0
        for match in _BAR.finditer(line.text):
            label, epoch, epochs = _said(line.text[begin : match.start()])
            begin, at, total = match.end(), int(match["n"]), match["total"]
            if label == _EPOCH and epochs and total == epochs:  # "Epoch 3/10: 30% 3/10": it counts these
                label = _EPOCHS
            if label not in (_EPOCH, _ROW, _EPOCHS, _UNLABELLED, *_LABELS):
                continue
            elapsed_s = _seconds(match["elapsed"] or match["rich"])
            before, before_s = self._ended((label, total), at, elapsed_s, epoch)
            if label in (_EPOCH, _ROW):
                before = 0 if total == "?" else epoch * int(total)
            rate = float(match["rate"].rstrip(".")) if match["rate"].count(".") <= 1 else 0.0
            ms = None if not rate else rate * 1e3 if match["unit"].startswith("s/") else 1e3 / rate
            self._drawn[label, total].append(LoggedRecord(before + at, ms, Stamp(before_s + elapsed_s, 1.0)))

    def _ended(self, bar: tuple[str, str], at: int, elapsed_s: float, epoch: int) -> tuple[int, float]:
        """Iterations and seconds of such bars that ended: where one has, the next is of the next epoch, or another
        rank's in a log of the Trainer, which draws one bar for the whole run.
        """
        ended, ended_s, before, before_s, epoch_before = self._at.get(bar, (0, 0.0, 0, 0.0, epoch))
        is_next = 2 * at <= before or (at == before and elapsed_s < before_s)  # of which only the end may be drawn
        is_next = str(before) == bar[1] and is_next and not self.is_of_trainer
        if is_next or epoch > epoch_before:
            ended, ended_s = ended + before, ended_s + before_s + _CUT_S
        self._at[bar] = ended, ended_s, at, elapsed_s, epoch
        return ended, ended_s

    def longest(self) -> tuple[str, list[LoggedRecord]]:
        """(writer, bars) of the training: the bars of epochs, else labelled ones, else the longest without a label."""
        for label in (_EPOCH, _ROW, *_LABELS, _EPOCHS, _UNLABELLED):
            of = [drawn for (name, _), drawn in self._drawn.items() if name == label]
            if of:
                if label == _EPOCHS:
                    return EPOCHS, of[0]
                other = "Hugging Face Trainer" if self.is_of_trainer else UNNAMED if label == _UNLABELLED else "tqdm"
                return "Lightning" if self._is_of_lightning else other, max(
                    of, key=lambda drawn: max(bar.clock.s for bar in drawn if bar.clock)
                )
        return "", []


def _said(before: str) -> tuple[str, int, str]:
    """Label, epoch and number of epochs before a bar and its percentage; ("", 0, "") where nothing stands there."""
    if (row := _COUNTED.match(before)) is not None:
        return _ROW, int(row["epoch"]), ""
    before = before.rstrip()
    if before.endswith("|"):
        before = before[: max(before.rfind("|", -_LONGEST_BAR - 2, -1), 0)].rstrip()
    before = before.rstrip(_DRAWN)
    if before.endswith("%"):
        before = before[:-1].rstrip("0123456789")
    match = _LABEL.search(before[-_LONGEST_LABEL:])
    if match is None and EVALUATION.search(before) is None:
        match = _FIRST.match(before[:_LONGEST_LABEL])
    if match is None:
        return _UNLABELLED, 0, ""
    label = _OF_TRAINING.sub("", match["label"].strip().lower())
    return _EPOCHS if label == _EPOCH and not match["epoch"] else label, int(match["epoch"] or 0), match["of"] or ""


def _seconds(elapsed: str) -> float:
    total = 0.0
    for part in elapsed.split(":"):
        total = total * 60 + (int(part) if part else 0)
    return total
