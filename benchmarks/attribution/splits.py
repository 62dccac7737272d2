"""Why a rank computes longer: a slower device, more work, or a stage of a pipeline with more layers.

All evidence is relative to what the rank computes longer, so that a fault of 5 % and one of 50 % read alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.attribution.own_time import OwnTime

DEVICE, WORK, STAGE = "straggler.compute", "straggler.imbalance", "pipeline.imbalance"
SLOW_DEVICE_PRIOR = 0.6  # of ranks that compute longer in every step; of labelled ones 35 of 60 are slow devices
# Standard deviations, each over the rank's excess. Paired kernels of a slow device hold all of it, within a third:
# those beside communication are not compared.
PACE_OF_DEVICE, PACE_OF_WORK, PACE_OF_LONGER = (1.0, 0.3), (0.1, 0.3), (0.9, 0.4)
FED_ALIKE, FED_ERROR, FED_MORE = 0.1, 0.03, (1.0, 0.4)  # bytes are counted within 3 %
NO_MORE, MORE = (0.0, 0.15), (1.0, 0.4)
HOT_OR_ALONE = 3.0  # natural log units for work: its place or its line in the program was seen
SMALLEST = 0.005  # an excess of nothing has no ratio
EVEN = 0.5


def why_longer(own: OwnTime, positions: Sequence[int], is_extra: bool = False) -> dict[str, float]:
    """Chance of each reason that these ranks compute longer."""
    # Kernels that the peers lack are work, whatever else is slow.
    log = {DEVICE: np.log(SLOW_DEVICE_PRIOR), WORK: np.log(1 - SLOW_DEVICE_PRIOR)}
    for position, rho in zip(positions, _longer(own, positions), strict=True):
        device, work = _likelihoods(own, position, rho)
        log[DEVICE] += device
        log[WORK] += work + HOT_OR_ALONE * (position in own.hot or position in own.alone)
    if is_extra:
        log[WORK] += HOT_OR_ALONE
    chance = _normalised(log)
    return _against_stages(own, positions, chance) if own.stages else chance


def are_fed_more(own: OwnTime, positions: Sequence[int]) -> bool:
    """True where larger batches explain most of these ranks' longer compute."""
    each = zip(positions, _longer(own, positions), strict=True)
    return all(float(own.fed[position]) > EVEN * rho for position, rho in each)


def _longer(own: OwnTime, positions: Sequence[int]) -> list[float]:
    """Relative excess of each rank's compute over the typical one's."""
    typical = max(float(own.typical("compute").mean()), 1e-9)
    excess = own.excess("compute")[list(positions)].mean(axis=1) / typical
    return [max(each, SMALLEST) for each in excess.tolist()]


def _likelihoods(own: OwnTime, position: int, rho: float) -> tuple[float, float]:
    """Log likelihood of what is known of a rank for a slow device and for more work."""
    pace, fed, more = (float(known[position]) / rho for known in (own.pace, own.fed, own.more))
    even = (0.0, FED_ALIKE + FED_ERROR / rho)
    device = _log(pace, PACE_OF_DEVICE) + _log(fed, even) + _log(more, NO_MORE)
    kinds = (
        _log(pace, PACE_OF_WORK) + _log(fed, even),
        _log(pace, PACE_OF_WORK) + _log(fed, FED_MORE),
        _log(pace, PACE_OF_LONGER) + _log(fed, FED_MORE),
    )
    extra = np.logaddexp(_log(more, NO_MORE), _log(more, MORE)) - np.log(2)
    return device, float(np.logaddexp.reduce(kinds) - np.log(len(kinds)) + extra)


def _against_stages(own: OwnTime, positions: Sequence[int], chance: dict[str, float]) -> dict[str, float]:
    """Likelihoods with the pipeline stage as a further reason: all its ranks, and no kernel slower than elsewhere."""
    whole = [stage for stage in own.stages if set(stage) <= set(positions)]
    if not whole or sum(map(len, whole)) < len(positions):
        return chance
    log = {DEVICE: 0.0, STAGE: 0.0}
    for position, rho in zip(positions, _longer(own, positions), strict=True):
        pace = float(own.stage_pace[position]) / rho
        log[DEVICE] += _log(pace, PACE_OF_DEVICE)
        log[STAGE] += _log(pace, PACE_OF_WORK)
    return _normalised(log)


def _log(value: float, of: tuple[float, float]) -> float:
    """Log density of a normal distribution, 0 where the value is not known."""
    mean, deviation = of
    if not np.isfinite(value):
        return 0.0
    return float(-0.5 * ((value - mean) / deviation) ** 2 - np.log(deviation))


def _normalised(log: dict[str, float]) -> dict[str, float]:
    whole = float(np.logaddexp.reduce([*log.values()]))
    return {name: float(np.exp(value - whole)) for name, value in log.items()}
