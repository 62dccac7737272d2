"""Recurrence of a time, and its ranks: one mixture over the ranks and steps of one cause.

A rank is common (its time scatters as everybody's, with events that befall any rank), steady (longer in every step) or
now and then (longer in steps of its own, at a rate of its own). Noise is Student-t with four degrees of freedom: heavy
enough that one odd step accuses nobody. Sums run over grids of the noise and of the shared rate of events:

    P(states, sigma, lam | x) ~ p(sigma) p(lam) prod_ranks [(1 - ps - pv) common + ps steady + pv own]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FREEDOM = 4.0  # degrees of freedom of the noise; with a normal one twice as many ranks are accused (2 of 142 against 0)
# Noise of one step, as a share of it: healthy device ranks differ by about 0.25 %, within a factor of three either way.
# Medians from 0.08 to 0.6 % give the same answers.
SIGMAS = np.geomspace(0.0005, 0.02, 12)
SIGMA_MEDIAN, SIGMA_SPREAD = 0.0025, 1.0  # log-normal
# Events per rank and step that all ranks share, and how likely each rate is before anything is seen.
RATES = np.array([1e-4, 1e-3, 0.01, 0.03, 0.06, 0.12, 0.25, 0.5])
RATE_WEIGHTS = np.array([0.5, 0.15, 0.1, 0.07, 0.06, 0.05, 0.04, 0.03])
SIZES = np.geomspace(0.008, 3.0, 28)  # of an excess, share of a step: below 0.8 % no finding is worth a line
SIZE_SCATTER = 0.15  # of an excess from step to step, relative
# Quantiles of the noise in 15 equal parts: what healthy ranks differ by in all steps alike, over its scale.
RANK_EFFECTS = np.array(
    [-2.46, -1.53, -1.1, -0.82, -0.59, -0.38, -0.19, 0.0, 0.19, 0.38, 0.59, 0.82, 1.1, 1.53, 2.46]
)  # fmt: skip
SMALLEST = 1e-5  # share of a step: a scale of nothing has no density


@dataclass(frozen=True)
class Prior:
    """Expectation for one cause before any data.

    `steady`, `own`: chance that a rank has it in every step, or now and then at a rate of its own. `scatter`: of
    healthy ranks, relative to the median of what ranks spend on it.
    """

    steady: float
    own: float
    scatter: float


@dataclass(frozen=True)
class Recurrence:
    """Chance of each rank's states, shape (ranks,), and of an event that any rank may have, shape (ranks, steps)."""

    steady: Floats
    own: Floats
    event: Floats

    @property
    def late(self) -> Floats:
        """Chance that the time is the rank's own, shape (ranks,)."""
        return self.steady + self.own


def recurrence(excess: Floats, level: Floats, prior: Prior, lean: Floats | float = 0.0) -> Recurrence:
    """The states of ranks by their `excess` over the typical rank, shape (ranks, steps), and the `level` of all, shape
    (steps,), both as shares of the step. `lean`: what else speaks for each rank's being late, natural log units.
    """
    ranks, steps = excess.shape
    if not steps or excess.max(initial=0.0) < SIZES[0]:
        return Recurrence(np.zeros(ranks), np.zeros(ranks), np.zeros((ranks, steps)))
    apart = prior.scatter * level
    scale = np.sqrt(SIGMAS[:, None] ** 2 + apart**2)[:, None, :]  # (sigmas, 1, steps)
    quiet = _log_density(excess, scale)  # (sigmas, ranks, steps)
    sizes = SIZES[:, None, None, None]
    sized = _log_density(excess - sizes, np.sqrt(scale**2 + (SIZE_SCATTER * sizes) ** 2))
    event = _log_mean(sized, 0)
    steady = _log_mean(sized.sum(axis=-1), 0)  # (sigmas, ranks)
    own = _now_and_then(quiet, event)
    shifted = _log_density(excess - max(float(apart.max()), SMALLEST) * RANK_EFFECTS[:, None, None, None], scale)
    rates = RATES[:, None, None, None]
    common = np.stack([_common(shifted, event, float(rate)) for rate in RATES])  # (rates, sigmas, ranks)
    weights = np.log([1 - prior.steady - prior.own, prior.steady, prior.own])
    states = np.stack(
        [common + weights[0], *np.broadcast_arrays(steady + weights[1] + lean, own + weights[2] + lean, common)[:2]]
    )
    whole = np.logaddexp.reduce(states, axis=0)
    belief = whole.sum(axis=-1) + np.log(RATE_WEIGHTS)[:, None] + _log_prior_of_noise()
    belief = np.exp(belief - np.logaddexp.reduce(belief, axis=None))[..., None]
    chance = np.exp(states - whole)
    struck = np.log(rates) + event - np.logaddexp(np.log1p(-rates) + quiet, np.log(rates) + event)
    struck = (belief * chance[0])[..., None] * np.exp(struck)
    return Recurrence(
        (belief * chance[1]).sum(axis=(0, 1)), (belief * chance[2]).sum(axis=(0, 1)), struck.sum(axis=(0, 1))
    )


def _common(shifted: Floats, event: Floats, rate: float) -> Floats:
    """Log likelihood of a rank like all others, for each noise; shape (sigmas, ranks)."""
    each = np.logaddexp(np.log1p(-rate) + shifted, np.log(rate) + event)
    return _log_mean(each.sum(axis=-1), 0)


def _now_and_then(quiet: Floats, event: Floats) -> Floats:
    """Log likelihood of events in one step at least, at any rate; shape (sigmas, ranks).

    The sum over all choices of k steps, by one step after another, of a rate that may be anything: B(1 + k, 1 + S - k).
    """
    steps = quiet.shape[-1]
    chosen = np.full((*quiet.shape[:-1], steps + 1), -np.inf)
    chosen[..., 0] = 0.0
    for step in range(steps):
        more = np.concatenate((np.full((*quiet.shape[:-1], 1), -np.inf), chosen[..., :-1]), axis=-1)
        chosen = np.logaddexp(chosen + quiet[..., step, None], more + event[..., step, None])
    counts = np.arange(1, steps + 1)
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, steps + 2)))))  # of factorials
    beta = logs[counts] + logs[steps - counts] - logs[steps + 1]
    return np.asarray(np.logaddexp.reduce(chosen[..., 1:] + beta, axis=-1))


def _log_prior_of_noise() -> Floats:
    weight = -0.5 * (np.log(SIGMAS / SIGMA_MEDIAN) / SIGMA_SPREAD) ** 2
    return np.asarray(weight - np.logaddexp.reduce(weight))


def _log_density(value: Floats, scale: Floats) -> Floats:
    """Student-t, its constant left out: all states have as many factors of it."""
    return np.asarray(-(FREEDOM + 1) / 2 * np.log1p((value / scale) ** 2 / FREEDOM) - np.log(scale))


def _log_mean(values: Floats, axis: int) -> Floats:
    return np.asarray(np.logaddexp.reduce(values, axis=axis) - np.log(values.shape[axis]))
