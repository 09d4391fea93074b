"""The paper's guarantees as calculators: samples for a target error, and the error for given samples.

Each guarantee has two readings. `printed` is the statement of the paper, with the constant `BoundInputs.constant` for every
O(·). `proved` is the result of the proofs in the appendix, with their constants kept and their slips corrected
(docs/bounds.md lists them); None where the paper has no proof.

All errors have the form  root / √n + linear / n + floor,  which is inverted in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hyrlo.core.errors import HyrloError
from hyrlo.core.ranges import Count, InnerShare, NonNegative, Options, Positive

Reading = Literal["printed", "proved"]
SLACK = 1e-9  # relative tolerance of rounding up: keeps a number that is whole up to rounding errors


@dataclass(frozen=True)
class BoundInputs(Options):
    """Quantities in the guarantees. Horizon, actions and coverage default to those of the paper's lock."""

    horizon: Count = 100
    """H, number of steps of an episode."""
    actions: Count = 10
    """A, number of actions."""
    coverage: Positive = 2.5
    """C_cov of the comparator (C_pd does as well); psdp-trace: its coverage by the roll-in."""
    coverage_bellman: Positive | None = None
    """C_be (hyq only); by default the same as `coverage`."""
    rank: Positive = 1.0
    """d, the bilinear rank (hyq only); S·A for a table. The default is its smallest possible value."""
    log_functions: NonNegative = 10.0
    """ln |F_h|, log size of the class of value functions."""
    log_policies: NonNegative | None = None
    """ln |Π_h|, log size of the class of one-step policies; by default the same as `log_functions`."""
    delta: InnerShare = 0.05
    """δ, probability with which the guarantee may fail."""
    v_max: Positive | None = None
    """Largest return of an episode; by default H, for rewards in [0, 1] (1/(1−γ) for inter-fail). `proved` only."""
    rounds: Count | None = None
    """T, rounds of the min-max game (fail, foobar); by default A·N, as in the proof of Theorem 5.2."""
    gamma: InnerShare = 0.99
    """Discount of the stationary algorithms, cpi and inter-fail."""
    ipm: NonNegative = 0.0
    """cpi: distance of the roll-in from the offline states."""
    bellman_error: NonNegative = 0.0
    """fail, inter-fail: ε_be, the Bellman error of the witness class."""
    constant: Positive = 1.0
    """Constant of O(·), under the square root; the paper does not state it."""
    least_squares: Positive = 22.0
    """Constant of the least-squares lemma that the paper cites for its ≲ (9.3 is enough, by Bernstein's inequality)."""

    @property
    def log_pi(self) -> float:
        return self.log_functions if self.log_policies is None else self.log_policies

    @property
    def most(self) -> float:
        """V_max of an episode of H steps."""
        return float(self.horizon) if self.v_max is None else self.v_max

    def log(self, sizes: float, events: float = 1.0) -> float:
        """ln(events · exp(sizes) / δ)."""
        return sizes + math.log(events / self.delta)


@dataclass(frozen=True)
class Rate:
    """error(n) = root / √n + linear / n + floor."""

    root: float
    linear: float = 0.0
    floor: float = 0.0

    def error(self, n: float) -> float:
        return self.root / math.sqrt(n) + self.linear / n + self.floor

    def samples(self, error: float) -> int:
        """The least n whose error is at most `error`."""
        above = error - self.floor
        if above <= 0:
            raise HyrloError(f"epsilon is {error}, below {self.floor:.4g} for any number of samples; give a larger one")
        inverse_root = 2 * above / (self.root + math.sqrt(self.root**2 + 4 * self.linear * above))
        return max(1, math.ceil((1 - SLACK) / inverse_root**2))

    def __rmul__(self, factor: float) -> Rate:
        return Rate(factor * self.root, factor * self.linear, factor * self.floor)


@dataclass(frozen=True)
class PhaseRates:
    """Error rates of one phase of an algorithm, which takes samples of its own."""

    name: str
    printed: Rate
    proved: Rate | None


@dataclass(frozen=True)
class Guarantee:
    """A theorem about an algorithm of one or two phases."""

    name: str
    source: str
    phases: tuple[PhaseRates, ...]
    most: float
    """Largest possible error: a bound above it is vacuous."""
    counts: str = "episodes per step"
    steps: int = 1
    """Number of steps, by which samples per step are multiplied."""

    def rates(self, reading: Reading) -> dict[str, Rate] | None:
        rates = {phase.name: getattr(phase, reading) for phase in self.phases}
        return None if None in rates.values() else rates

    def samples(self, error: float, reading: Reading = "printed") -> dict[str, int] | None:
        """Samples per phase. As printed each phase has to reach the error; as proved the errors add up, shared equally."""
        if not error > 0 or not math.isfinite(error):
            raise HyrloError(f"epsilon is {error}; give a finite number above 0")
        rates = self.rates(reading)
        share = error if reading == "printed" else error / len(self.phases)
        return None if rates is None else {name: rate.samples(share) for name, rate in rates.items()}

    def error(self, samples: dict[str, int] | int, reading: Reading = "printed") -> float | None:
        """Error for this number of samples, the same for every phase or by phase; None without a proof."""
        rates = self.rates(reading)
        if rates is None:
            return None
        given = dict.fromkeys(rates, samples) if isinstance(samples, int) else samples
        for n in given.values():
            if not n > 0:
                raise HyrloError(f"samples is {n}; give a number above 0")
        errors = [rate.error(given[name]) for name, rate in rates.items()]
        return max(errors) if reading == "printed" else sum(errors)

    def total(self, samples: dict[str, int] | int) -> int:
        phases = samples.values() if isinstance(samples, dict) else [samples] * len(self.phases)
        return self.steps * sum(phases)


def hyq_bound(inputs: BoundInputs) -> Guarantee:
    """Table 1, first line; the proof is in another paper."""
    p, coverage = inputs, inputs.coverage_bellman or inputs.coverage
    printed = coverage * p.horizon**2 * math.sqrt(p.constant * p.actions * p.rank * p.log(p.log_functions))
    return Guarantee("hyq", "Table 1", (PhaseRates("online", Rate(printed), None),), p.most, steps=p.horizon)


def psdp_bound(inputs: BoundInputs) -> Guarantee:
    """Table 1, second line; `proved` is the proof of Theorem 5.2 with π^f = μ."""
    return Guarantee("psdp", "Table 1", (_backward(inputs, events=1),), inputs.most, steps=inputs.horizon)


def psdp_trace_bound(inputs: BoundInputs) -> Guarantee:
    """Theorem D.1: the backward pass from any roll-in, by the coverage of that roll-in."""
    return Guarantee("psdp-trace", "Theorem D.1", (_backward(inputs, events=1),), inputs.most, steps=inputs.horizon)


def _backward(p: BoundInputs, events: int) -> PhaseRates:
    """C Σ_h 2 ε_back, where ε_back² = c V_max² A ln(|F|/δ) / N: a δ of its own for every step."""
    printed = p.coverage * p.horizon**2 * math.sqrt(p.constant * p.actions * p.log(p.log_functions))
    variance = p.least_squares * p.actions * p.log(p.log_functions, events * p.horizon)
    return PhaseRates("backward", Rate(printed), Rate(2 * p.coverage * p.horizon * p.most * math.sqrt(variance)))


def fail_bound(inputs: BoundInputs) -> Guarantee:
    """Theorem 5.1: the IPM at the last step, with the witnesses of Equation 1."""
    p, witnesses = inputs, inputs.log_functions + math.log(inputs.actions)
    be = Rate(0.0, 0.0, p.bellman_error)
    printed = _add(_forward(p, p.log(witnesses + p.log_pi, events=2)), be)
    proved = _add(p.most * _forward(p, p.log(witnesses + p.log_pi, events=2 * p.horizon)), be)
    phase = PhaseRates("forward", p.horizon * printed, p.horizon * proved)
    return Guarantee("fail", "Theorem 5.1", (phase,), p.most, steps=p.horizon)


def _forward(p: BoundInputs, log: float) -> Rate:
    """ε_for of Theorem 5.1, for witnesses between 0 and 1."""
    root, linear = 8 * math.sqrt(2 * p.actions * log), 16 * p.actions * log
    if p.rounds is None:
        return Rate(root + math.sqrt(p.actions), linear)
    return Rate(root, linear, p.actions / math.sqrt(p.rounds))


def _add(one: Rate, other: Rate) -> Rate:
    return Rate(one.root + other.root, one.linear + other.linear, one.floor + other.floor)


def foobar_bound(inputs: BoundInputs) -> Guarantee:
    """Theorem 5.2 (and, with C_pd as coverage, Theorem E.1).

    As proved, the IPM of step h is at most h ε_for, for witnesses max_a f − f(·, argmax f′) of either sign: 2 |F|² of them.
    """
    p = inputs
    logs = p.log(p.log_functions + p.log_pi)
    printed = Rate(p.coverage * p.horizon**2 * math.sqrt(p.constant * p.actions * logs))
    one_step = _add(
        p.most * _forward(p, p.log(2 * p.log_functions + p.log_pi, events=2 * 2 * 2 * p.horizon)),
        Rate(0.0, 0.0, p.bellman_error),
    )
    forward = PhaseRates("forward", printed, p.coverage * p.horizon * (p.horizon + 1) / 2 * one_step)
    return Guarantee("foobar", "Theorem 5.2", (forward, _backward(p, events=2)), p.most, steps=p.horizon)


def cpi_bound(inputs: BoundInputs) -> Guarantee:
    """Theorem D.2, with the 8γ/ε² iterations of Lemma D.1; the paper does not state the samples of an iteration."""
    p, horizon = inputs, 1 / (1 - inputs.gamma)
    rate = Rate(p.coverage * horizon**2 * 2 * math.sqrt(8 * p.gamma), 0.0, p.coverage * horizon * p.ipm)
    return Guarantee("cpi", "Theorem D.2", (PhaseRates("iterations", rate, rate),), horizon, counts="iterations")


def inter_fail_bound(inputs: BoundInputs) -> Guarantee:
    """Theorem D.3: the IPM of the stationary forward pass."""
    p, horizon = inputs, 1 / (1 - inputs.gamma)
    most = horizon if p.v_max is None else p.v_max
    log = p.log(p.log_functions + math.log(p.actions) + p.log_pi, events=2)
    root = horizon * 8 * math.sqrt(2 * p.actions**2 * log)
    floor = horizon * p.bellman_error
    phase = PhaseRates("forward", Rate(root, 0.0, floor), Rate(most * root, 0.0, floor))
    return Guarantee("inter-fail", "Theorem D.3", (phase,), most, counts="episodes")


GUARANTEES: dict[str, Callable[[BoundInputs], Guarantee]] = {
    "hyq": hyq_bound,
    "psdp": psdp_bound,
    "foobar": foobar_bound,
    "fail": fail_bound,
    "psdp-trace": psdp_trace_bound,
    "cpi": cpi_bound,
    "inter-fail": inter_fail_bound,
}
TABLE_1 = ("hyq", "psdp", "foobar")
