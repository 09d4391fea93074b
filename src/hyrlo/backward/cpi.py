"""Algorithm 5, CPI-trace: one stationary policy, improved conservatively from the states that a roll-in policy reaches.

    repeat:  π′ = Greedy_ε(π, Π, d^{π^f})                        the best policy on the states of d^π, started from d^{π^f}
             stop if E_{s ∼ d^π started from d^{π^f}} A^π(s, π′(s)) ≤ ε
             π ← (1 − α) π + α π′

Values are averages, (1 − γ) Σ γ^h r. For rewards from 0 to 1 and α = (1 − γ)𝔸/4γ, with 𝔸 the tested advantage or, for
one α throughout, its lower bound ε, every update gains at least ε²/8γ, so that there are at most 8γ/ε² of them.

`cpi_finite` is this on a finite MDP with exact or sampled values, `cpi_networks` with networks through a trace model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.random import fold_in
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.backward import sac
from hyrlo.core.access import TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.errors import HyrloError, check_positive
from hyrlo.core.networks import Whitened, pick, whiten
from hyrlo.core.policies import Blend, Greedy, Policy, switch
from hyrlo.core.regression import FitConfig, MlpSgd, create_q, fit_q
from hyrlo.theory.discounted import DiscountedMDP, Table, geometric, greedy_table, table_policy

GAMMA = 0.95  # where the world has no discount of its own


def most_updates(gamma: float, epsilon: float) -> float:
    """The paper's bound on the number of updates, 8γ/ε²."""
    return 8 * gamma / epsilon**2


def step_size(advantage: float, gamma: float) -> float:
    """The step with the largest guaranteed gain, (1 − γ)𝔸/4γ."""
    return 1.0 if gamma == 0 else float(np.clip((1 - gamma) * advantage / (4 * gamma), 0.0, 1.0))


# Finite MDPs


class Estimate(NamedTuple):
    """Of a policy: the states of `d^π` started from `d^{π^f}`, and its advantages."""

    states: Float[np.ndarray, " states"]
    advantage: Table


class CpiResult(NamedTuple):
    """The returned policy, and of every iteration the tested advantage and the policy."""

    policy: Table
    stopped: bool
    """Whether the stopping test ended it."""
    updates: int
    advantages: list[float]
    policies: list[Table]


def exact_estimates(mdp: DiscountedMDP, roll_in: Table) -> Callable[[Table, int], Estimate]:
    start = mdp.occupancy(roll_in)
    return lambda policy, t: Estimate(mdp.occupancy(policy, start), mdp.advantage(policy))


def sampled_estimates(
    model: TraceModel, roll_in: Table, gamma: float, samples: int, key: PRNGKeyArray
) -> Callable[[Table, int], Estimate]:
    """Advantages from geometric roll-ins; an action never tried in a state has none."""

    def estimate(policy: Table, t: int) -> Estimate:
        batch = collect(model, table_policy(roll_in), table_policy(policy), samples, gamma, fold_in(key, t))
        states, actions = np.asarray(batch.states).argmax(axis=1), np.asarray(batch.actions)
        tried, sums = np.zeros_like(policy), np.zeros_like(policy)
        np.add.at(tried, (states, actions), 1)
        np.add.at(sums, (states, actions), np.asarray(batch.targets))
        q = sums / np.maximum(tried, 1)
        known = policy * (tried > 0)
        value = np.sum(known * q, axis=1) / np.maximum(known.sum(axis=1), 1e-12)
        return Estimate(tried.sum(axis=1) / samples, np.where(tried > 0, q - value[:, None], 0.0))

    return estimate


def cpi_finite(
    estimate: Callable[[Table, int], Estimate],
    policy: Table,
    gamma: float,
    epsilon: float,
    *,
    alpha: float | None = None,
    select: Callable[[Estimate], Table] = lambda estimate: greedy_table(estimate.advantage),
    most: int | None = None,
) -> CpiResult:
    """Algorithm 5 from `policy`. `alpha`: (1 − γ)𝔸/4γ unless told; `most` updates, by default ten times the bound."""
    most = int(10 * most_updates(gamma, epsilon)) + 10 if most is None else most
    advantages: list[float] = []
    policies: list[Table] = []
    for t in range(most + 1):
        now = estimate(policy, t)
        better = select(now)
        advantage = float(np.sum(now.states[:, None] * better * now.advantage))
        advantages.append(advantage)
        policies.append(policy)
        if advantage <= epsilon:
            return CpiResult(policy, True, t, advantages, policies)
        if t < most:
            step = step_size(advantage, gamma) if alpha is None else alpha
            policy = (1 - step) * policy + step * better
    return CpiResult(policy, False, most, advantages, policies)


# Networks


@dataclass(frozen=True)
class CpiConfig:
    """CPI-trace with networks: Q by regression, the policy a blend of greedy ones."""

    iterations: int = 25
    """Updates at most; the first policy is uniform."""
    samples: int = 1000
    """Episodes per iteration, each of which gives one state, action and discounted return."""
    epsilon: float = 0.002
    """Stop once the advantage is no more than this, on the scale of a step's reward; far below 0: never."""
    alpha: float | None = 0.3
    """Share of the new greedy policy in an update; None: (1 − γ)𝔸/4γ, safe but of very small steps."""
    gamma: float | None = None
    """Discount; None: the world's own where it has one, else 0.95."""
    test_share: float = 0.3
    """Share of the samples kept for the stopping test."""
    fit: FitConfig = field(
        default_factory=lambda: MlpSgd(updates=1500, learning_rate=2e-3, batch=128, restarts=3, rounds=1)
    )

    def __post_init__(self) -> None:
        check_positive(self, "iterations", "samples")
        if not np.isfinite(self.epsilon):
            raise HyrloError(f"epsilon is {self.epsilon}; give a finite number")
        for name in ("alpha", "gamma"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= (1 if name == "alpha" else 1 - 1e-9):
                raise HyrloError(f"{name} is {value}; give a number between 0 and 1, or None")
        if not 0 < self.test_share < 1:
            raise HyrloError(f"test_share is {self.test_share}; give a share between 0 and 1")
        if not 1 <= int(self.samples * self.test_share) <= self.samples - 2:
            raise HyrloError(f"samples is {self.samples}; too few to both fit and test, give more")


PRESETS = {"paper": CpiConfig()}


def cpi(model: TraceModel, source: Policy, config: Any, key: PRNGKeyArray, run: Run) -> Policy:
    """CPI-trace from the roll-in `source`: in practice with SAC, or with the preset `paper` as Algorithm 5."""
    learn = cpi_networks if isinstance(config, CpiConfig) else sac.cpi_trace
    return learn(model, source, config, key, run)


class Samples(NamedTuple):
    """States of `d^π` started from `d^{π^f}`, uniform actions, and what (1 − γ) Σ γ^k r_{h+k} came to."""

    states: Float[Array, "n obs"]
    actions: Int[Array, " n"]
    targets: Float[Array, " n"]


def collect(model: TraceModel, roll_in: Policy, policy: Policy, n: int, gamma: float, key: PRNGKeyArray) -> Samples:
    """`π^f ∘_g π ∘_h unif ∘_{h+1} π` with g and h − g geometric; the horizon cuts both off."""
    first_key, second_key, rollout_key = jax.random.split(key, 3)
    horizon = model.spec.horizon
    begin = geometric(first_key, gamma, n, horizon)
    at = begin + geometric(second_key, gamma, n, horizon - begin)
    after = switch(policy, at=at, to=switch(model.spec.uniform(), at=at + 1, to=policy))
    batch = model.record(rollout_key, switch(roll_in, at=begin, to=after), n, tuple(range(horizon)))
    return _discounted(batch.states, batch.actions, batch.rewards, jnp.asarray(at), jnp.asarray(gamma))


@jax.jit
def _discounted(states: Array, actions: Array, rewards: Array, at: Int[Array, " n"], gamma: Array) -> Samples:
    episodes = jnp.arange(len(at))
    ahead = jnp.arange(len(rewards))[:, None] - at
    weights = jnp.where(ahead >= 0, gamma ** jnp.maximum(ahead, 0), 0.0)
    targets = (1 - gamma) * jnp.sum(weights * rewards, axis=0)
    return Samples(states[at, episodes], actions[at, episodes], targets)


class Progress(NamedTuple):
    policy: Blend
    stopped: Bool[Array, ""]


def cpi_networks(model: TraceModel, source: Policy, config: CpiConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """Algorithm 5 with networks."""
    spec = model.spec
    if spec.action_size:
        raise HyrloError("cpi with preset paper tries every action, so actions must be discrete; leave out the preset")
    gamma = getattr(model, "gamma", GAMMA) if config.gamma is None else config.gamma
    size = spec.observation_size
    blank = Greedy(Whitened(create_q(key, size, spec.actions, config.fit), jnp.zeros(size), jnp.ones(size)))  # type: ignore[arg-type]
    several = jax.tree.map(lambda x: jnp.repeat(x[None], config.iterations, axis=0), blank)
    uniform = Blend(several, jnp.zeros(config.iterations), spec.actions)
    phase = run.phase("backward", range(config.iterations), Progress(uniform, jnp.zeros((), bool)), model)
    for t in phase:
        policy, stopped = phase.state
        if stopped:
            break
        collect_key, fit_key = jax.random.split(fold_in(key, t))
        batch = collect(model, source, policy, config.samples, gamma, collect_key)
        held = int(config.samples * config.test_share)
        better, unit, loss = fit_greedy(fit_key, Samples(*(x[held:] for x in batch)), spec.actions, config.fit)
        advantage = float(estimated_advantage(policy, better, Samples(*(x[:held] for x in batch)), unit))
        done = advantage <= config.epsilon
        alpha = 0.0 if done else step_size(advantage, gamma) if config.alpha is None else config.alpha
        if not done:
            policy = policy.towards(better, alpha, t)
        progress = Progress(policy, jnp.asarray(done))
        phase.done(spec.horizon, progress, evaluate=policy, iteration=t, advantage=advantage, alpha=alpha, loss=loss)
    return phase.state.policy


def fit_greedy(key: PRNGKeyArray, batch: Samples, actions: int, config: FitConfig) -> tuple[Greedy, Array, float]:
    """Greedy_ε: a Q-function in units of the targets' deviation, that unit, and the held-out loss."""
    shift, scale = batch.states.mean(axis=0), batch.states.std(axis=0)
    scale = jnp.where(scale > 1e-6, scale, 1.0)
    unit = jnp.maximum(batch.targets.std(), 1e-9)
    targets = (batch.targets - batch.targets.mean()) / unit
    q, report = fit_q(key, whiten(batch.states, shift, scale), batch.actions, targets, actions, config)
    return Greedy(Whitened(q, shift, scale)), unit, report.loss  # type: ignore[arg-type]


@eqx.filter_jit
def estimated_advantage(policy: Blend, better: Greedy, batch: Samples, unit: Float[Array, ""]) -> Float[Array, ""]:
    """`E A^π(s, π′(s))` on samples that π′ was not fitted to; its Q is in `unit`s.

    By the fitted Q, and what it got wrong added with importance weights: unbiased whatever the fit (doubly robust).
    """
    q = better.q(batch.states)  # type: ignore[operator]
    change = jax.nn.one_hot(jnp.argmax(q, axis=1), policy.actions) - policy.probabilities(batch.states)
    wrong = (batch.targets - batch.targets.mean()) / unit - pick(q, batch.actions)
    return unit * jnp.mean(jnp.sum(change * q, axis=1) + policy.actions * pick(change, batch.actions) * wrong)
