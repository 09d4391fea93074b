"""Algorithm 5, CPI-trace: one stationary policy, improved conservatively from the states that a roll-in policy reaches.

    repeat:  π′ = Greedy_ε(π, Π, d^{π^f})                        the best policy on the states of d^π, started from d^{π^f}
             stop if E_{s ∼ d^π started from d^{π^f}} A^π(s, π′(s)) ≤ ε
             π ← (1 − α) π + α π′

Values are averages, (1 − γ) Σ γ^h r. For rewards from 0 to 1 and α = (1 − γ)𝔸/4γ, with 𝔸 the tested advantage or, for
one α throughout, its lower bound ε, every update gains at least ε²/8γ, so that there are at most 8γ/ε² of them.

`cpi_networks` is this with networks through a trace model; on a finite MDP it is `hyrlo.theory.finite_cpi`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.backward import off_policy, sac
from hyrlo.core.access import TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.errors import HyrloError
from hyrlo.core.keys import Keys
from hyrlo.core.networks import Whitened, pick
from hyrlo.core.policies import Blend, Greedy, Policy, switch
from hyrlo.core.ranges import Count, Finite, InnerShare, Options, PositiveShare
from hyrlo.core.regression import FitConfig, MlpSgd, create_q, fit_q
from hyrlo.core.whitening import Whitening

GAMMA = 0.95  # where the world has no discount of its own


def most_updates(gamma: float, epsilon: float) -> float:
    """The paper's bound on the number of updates, 8γ/ε²."""
    return 8 * gamma / epsilon**2


def step_size(advantage: float, gamma: float) -> float:
    """The step with the largest guaranteed gain, (1 − γ)𝔸/4γ."""
    return 1.0 if gamma == 0 else float(np.clip((1 - gamma) * advantage / (4 * gamma), 0.0, 1.0))


def geometric(
    key: PRNGKeyArray, gamma: float, n: int, most: int | Int[np.ndarray, " n"] | None = None
) -> Int[np.ndarray, " n"]:
    """Stopping times `h ∼ Geom(1 − γ)`, P(h) = (1 − γ) γ^h for h = 0, 1, …; conditioned on h < `most`, if given."""
    draws = np.asarray(jax.random.uniform(key, (n,)), float)
    if gamma == 0:
        return np.zeros(n, int)
    reach = 1.0 if most is None else 1 - gamma ** np.asarray(most, float)
    times = np.floor(np.log1p(-draws * reach) / np.log(gamma)).astype(int)
    return times if most is None else np.minimum(times, np.asarray(most) - 1)


@dataclass(frozen=True)
class CpiConfig(Options):
    """CPI-trace with networks: Q by regression, the policy a blend of greedy ones."""

    iterations: Count = 25
    """Maximum number of updates; the first policy is uniform."""
    samples: Count = 1000
    """Episodes per iteration, each of which gives one state, action and discounted return."""
    epsilon: Finite = 0.002
    """Stop once the advantage is at most this, on the scale of a single reward; far below 0 never stops."""
    alpha: PositiveShare | None = 0.3
    """Share of the new greedy policy in an update; None: (1 − γ)𝔸/4γ, which is safe but very small."""
    gamma: InnerShare | None = None
    """Discount; None: the world's own where it has one, else 0.95."""
    test_share: InnerShare = 0.3
    """Share of the samples kept for the stopping test."""
    fit: FitConfig = field(
        default_factory=lambda: MlpSgd(updates=1500, learning_rate=2e-3, batch=128, restarts=3, rounds=1)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= int(self.samples * self.test_share) <= self.samples - 2:
            raise HyrloError(f"samples is {self.samples}; too few to both fit and test, give more")


PRESETS = {"paper": CpiConfig()}


def cpi(
    model: TraceModel, source: Policy, config: CpiConfig | sac.RollInSacConfig, key: PRNGKeyArray, run: Run
) -> Policy:
    """CPI-trace from the roll-in `source`: in practice with SAC, or with a `CpiConfig` as Algorithm 5."""
    if isinstance(config, CpiConfig):
        return cpi_networks(model, source, config, key, run)
    return off_policy.cpi_trace(model, source, config, key, run)


class CpiBatch(NamedTuple):
    """States of `d^π` started from `d^{π^f}`, uniform actions, and discounted returns (1 − γ) Σ γ^k r_{h+k}."""

    states: Float[Array, "n obs"]
    actions: Int[Array, " n"]
    targets: Float[Array, " n"]


def collect(model: TraceModel, roll_in: Policy, policy: Policy, n: int, gamma: float, key: PRNGKeyArray) -> CpiBatch:
    """`π^f ∘_g π ∘_h unif ∘_{h+1} π` with g and h − g geometric; the horizon cuts both off."""
    keys = Keys(key)
    horizon = model.spec.horizon
    begin = geometric(keys.roll_in, gamma, n, horizon)
    at = begin + geometric(keys.policy, gamma, n, horizon - begin)
    after = switch(policy, at=at, to=switch(model.spec.uniform(), at=at + 1, to=policy))
    batch = model.record(keys.rollout, switch(roll_in, at=begin, to=after), n, tuple(range(horizon)))
    return _discounted(batch.states, batch.actions, batch.rewards, jnp.asarray(at), jnp.asarray(gamma))


@jax.jit
def _discounted(states: Array, actions: Array, rewards: Array, at: Int[Array, " n"], gamma: Array) -> CpiBatch:
    episodes = jnp.arange(len(at))
    ahead = jnp.arange(len(rewards))[:, None] - at
    weights = jnp.where(ahead >= 0, gamma ** jnp.maximum(ahead, 0), 0.0)
    targets = (1 - gamma) * jnp.sum(weights * rewards, axis=0)
    return CpiBatch(states[at, episodes], actions[at, episodes], targets)


class CpiState(NamedTuple):
    """The policy so far, and whether the stopping test has ended the run."""

    policy: Blend
    stopped: Bool[Array, ""]


def cpi_networks(model: TraceModel, source: Policy, config: CpiConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """Algorithm 5 with networks."""
    spec = model.spec
    if spec.action_size:
        raise HyrloError("--improve cpi tries every action, so actions must be discrete; use --improve sac")
    gamma = getattr(model, "gamma", GAMMA) if config.gamma is None else config.gamma
    fresh = create_q(Keys(key).create, spec.observation_size, spec.actions, config.fit)
    blank = Greedy(Whitened.create(fresh, Whitening.identity(spec.observation_size)))  # type: ignore[arg-type]
    several = jax.tree.map(lambda x: jnp.repeat(x[None], config.iterations, axis=0), blank)
    uniform = Blend(several, jnp.zeros(config.iterations), spec.actions)
    phase = run.phase("backward", range(config.iterations), CpiState(uniform, jnp.zeros((), bool)), model)
    for t in phase:
        policy, stopped = phase.state
        if stopped:
            break
        keys = Keys(key).at(t)
        batch = collect(model, source, policy, config.samples, gamma, keys.collect)
        held = int(config.samples * config.test_share)
        better, unit, loss = fit_greedy(keys.fit, CpiBatch(*(x[held:] for x in batch)), spec.actions, config.fit)
        advantage = float(estimated_advantage(policy, better, CpiBatch(*(x[:held] for x in batch)), unit))
        done = advantage <= config.epsilon
        alpha = 0.0 if done else step_size(advantage, gamma) if config.alpha is None else config.alpha
        if not done:
            policy = policy.towards(better, alpha, t)
        progress = CpiState(policy, jnp.asarray(done))
        phase.done(spec.horizon, progress, evaluate=policy, iteration=t, advantage=advantage, alpha=alpha, loss=loss)
    return phase.state.policy


def fit_greedy(key: PRNGKeyArray, batch: CpiBatch, actions: int, config: FitConfig) -> tuple[Greedy, Array, float]:
    """Greedy_ε: a Q-function in units of the targets' deviation, that unit, and the held-out loss."""
    whitening = Whitening.of(batch.states)
    unit = jnp.maximum(batch.targets.std(), 1e-9)
    targets = (batch.targets - batch.targets.mean()) / unit
    q, report = fit_q(key, whitening(batch.states), batch.actions, targets, actions, config)
    return Greedy(Whitened.create(q, whitening)), unit, report.loss  # type: ignore[arg-type]


@eqx.filter_jit
def estimated_advantage(policy: Blend, better: Greedy, batch: CpiBatch, unit: Float[Array, ""]) -> Float[Array, ""]:
    """`E A^π(s, π′(s))` on samples that π′ was not fitted to; its Q is in `unit`s.

    Doubly robust: the fitted Q plus its importance-weighted error, so that it is unbiased whatever the fit.
    """
    q = better.q(batch.states)  # type: ignore[operator]
    change = jax.nn.one_hot(jnp.argmax(q, axis=1), policy.actions) - policy.probabilities(batch.states)
    wrong = (batch.targets - batch.targets.mean()) / unit - pick(q, batch.actions)
    return unit * jnp.mean(jnp.sum(change * q, axis=1) + policy.actions * pick(change, batch.actions) * wrong)
