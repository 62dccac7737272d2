"""Settings of a what-if as an address holds them: "num_workers=4", "device=replaced@3", as on the command line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddprof.analyzers.settings.knobs import Setting, parse_setting
from ddprof.analyzers.settings.offers import Offer
from ddprof.analyzers.settings.present import present
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.errors import UsageError


@dataclass(frozen=True)
class WantedSettings:
    """What was asked for, in the order of the controls; `refused`: why something else that was asked cannot be."""

    settings: tuple[Setting, ...] = ()
    refused: tuple[str, ...] = ()


def wanted_settings(opened: OpenRun, query: Mapping[str, Any]) -> WantedSettings:
    """The settings of a query that make sense for the run; whatever else the query holds is not looked at."""
    settings, refused = [], []
    for offer in opened.offers:
        text = str(query.get(offer.knob.key) or "").strip()
        if not text:
            continue
        try:
            settings.append(_checked(opened, offer, text))
        except UsageError as error:
            refused.append(str(error))
    return WantedSettings(tuple(settings), tuple(refused))


def _checked(opened: OpenRun, offer: Offer, text: str) -> Setting:
    knob = offer.knob
    if offer.lacking:
        raise UsageError(f"{knob.key}: {offer.lacking}")
    setting = parse_setting(f"{knob.key}={text}")
    if knob.is_factor:
        setting = Setting(knob.key, _within(setting.value, knob.most), setting.ranks)
    knob.changes(setting, opened.measures, present(opened.measures, {}))
    return setting


def _within(text: str, most: float) -> str:
    """A factor as far as its control goes; 1, as recorded, for what is no number."""
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    return f"{min(max(factor, 1.0), most):g}" if factor == factor else "1"
