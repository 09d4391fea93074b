"""FAIL's estimator with a learned model: for action vectors, long horizons and few samples.

For h = 0, k, 2k, … (k steps share a policy): roll in π_0 … π_{h−1}, act for n·k steps, and let π_h be the first of the n
policies (`ahead`) that solve

    min_π  Σ_{j=1…n·k}  MMD²( s_{h+j} under π,  D_{h+j} )

by gradient steps. A one-step model is learned from all transitions so far: s_{h+j} follows from s_h, π and the model, and
the gradient goes through all of them (reparametrised). For discrete actions it takes the exact mean over the last action.
Collection and update alternate `rounds` times, so that the model is right where π goes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.access import Recorded, Spec
from hyrlo.core.errors import HyrloError
from hyrlo.core.keys import Keys
from hyrlo.core.networks import Dynamics
from hyrlo.core.policies import Gaussian, Mixture, Policy, Stack, switch
from hyrlo.core.ranges import Count, CountOrZero, NonNegative, Positive, Share
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import StateUnits
from hyrlo.forward import gradient
from hyrlo.forward.dynamics import (
    DynamicsConfig,
    Memory,
    add_steps,
    create_dynamics,
    create_memory,
    learn_dynamics,
    model_error,
    past_of,
)
from hyrlo.forward.fail import Estimator
from hyrlo.forward.goals import Goals, Units, features_of, unbiased_distance2
from hyrlo.forward.gradient import GaussianConfig, GradientConfig, Starts, policy_at
from hyrlo.forward.lost import FAR, distance_in

POLICIES, VECTOR_POLICIES = 40, 70
"""The most policies, where `share_steps` is 0."""
STEPS, MOST_HORIZON = 1000, 100
"""Environment steps for each step of the horizon, of which no more than these count."""
LEAST, MOST = 16, 512
"""Episodes of a round."""
SHARE = 0.8
"""Of the steps; the others are for repairs."""
REPAIRS, LOST = 2, 3
"""Rounds that a step may have for repairs, and steps in a row that may need more of them until the pass gives up."""
COMPARED = 500
"""Offline states that the roll-in is compared with."""


@dataclass(frozen=True)
class ModelConfig(GradientConfig):
    """Forward pass by a learned model."""

    samples: CountOrZero = 0
    """Online episodes per round; 0: as many as `steps` allows, more at early steps, which cost less."""
    share_steps: CountOrZero = 0
    """Number of consecutive steps that share a policy; 0: as many as give at most 40 policies (70 for action vectors)."""
    steps: CountOrZero = 0
    """Environment steps, where `samples` is 0 (default: 1,000 for each of the first 100 steps of the horizon)."""
    explore_share: Share = 0.5
    """Share of the first round's episodes whose actions are uniform from step h on."""
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)

    def estimator(self, spec: Spec, data: ObservationDataset, key: PRNGKeyArray) -> ModelEstimator:
        return ModelEstimator(spec, data, self, key)


@dataclass(frozen=True)
class VectorModelConfig(GaussianConfig, ModelConfig):
    """Forward pass by a learned model, for action vectors."""

    rounds: Count = 1
    updates: Count = 250
    learning_rate: Positive = 3e-3
    features: Count = 512
    units: Units = "joint"
    moments: NonNegative = 0.01
    ahead: Count = 3
    """Number of steps that are matched together, where a policy serves fewer. The policies after the first are where the
    next ones start. Give more than 1 where actions show later than in the very next state."""
    dynamics: DynamicsConfig = field(
        default_factory=lambda: DynamicsConfig(
            hidden=256, updates=500, memory=60_000, history=True, near=0.5, least_step=0.02
        )
    )
    explore_std: NonNegative = 0.3
    """If above 0, exploring actions are the policy's with at least this standard deviation, instead of uniform."""


PRESETS = {"fast": ModelConfig()}
VECTOR_PRESETS = {"fast": VectorModelConfig()}


class ModelState(NamedTuple):
    """What is learned so far."""

    policy: Stack
    dynamics: Dynamics
    memory: Memory
    excess: Float[Array, " horizon+1"]
    """Distance of the roll-in's states of each step to the offline ones, beyond that of equal distributions; NaN where it has
    not been measured."""


class ModelEstimator(Estimator):
    """A learned one-step model, and policies by gradient descent through it.

    The states in which a step begins show how well the steps before were matched. Where they are off, a policy before is
    improved with more episodes, each time further back. If that does not help at several steps in a row, the pass gives up:
    no more episodes are spent on later steps. Numbers of episodes that are given by the user are kept all the same.
    """

    def __init__(self, spec: Spec, data: ObservationDataset, config: ModelConfig, key: PRNGKeyArray):
        if isinstance(config, VectorModelConfig) != bool(spec.action_size):
            raise HyrloError("ModelConfig is for discrete actions, VectorModelConfig for action vectors")
        self.spec, self.data, self.config, self.samples = spec, data, config, config.samples
        vectors = isinstance(config, VectorModelConfig)
        self.block = config.share_steps or -(-spec.horizon // (VECTOR_POLICIES if vectors else POLICIES))
        self.ahead = -(-config.ahead // self.block) if isinstance(config, VectorModelConfig) else 1
        """Policies that are found together."""
        self.units = StateUnits.of_steps(data.steps, spec.ends)
        self.rounds, self.keys = config.rounds, Keys(key)
        self.goal_maker = gradient.goal_maker(self.keys.features, data, spec, self.units, config)
        self.most = config.samples or max(self.episodes(h) for h in range(0, spec.horizon, self.block))
        self.seen: list[Starts] = []
        self.repairs = 0

    def episodes(self, h: int) -> int:
        """Episodes of a round of step `h`: half of the steps are spent evenly on episodes, half evenly on policies, so that
        early steps, which cost less, have more of them. A power of two: every size is compiled anew."""
        steps = SHARE * self.total_steps() / self.config.rounds
        costs = [self.stop(h) for h in range(0, self.spec.horizon, self.block)]
        wanted = 0.5 * steps / sum(costs) + 0.5 * steps / len(costs) / self.stop(h)
        return int(np.clip(2 ** round(np.log2(wanted)), LEAST, MOST))

    def total_steps(self) -> int:
        return self.config.steps or STEPS * min(self.spec.horizon, MOST_HORIZON)

    def start(self) -> ModelState:
        config, spec = self.config, self.spec
        dynamics = create_dynamics(self.keys.dynamics, spec, self.units.whitening, config.dynamics)
        memory = create_memory(spec, config.dynamics.memory, config.dynamics.history)
        policies = gradient.initial_policies(self.keys.policy, self.data, spec, self.block, self.units, config)
        return ModelState(policies, dynamics, memory, jnp.full(spec.horizon + 1, jnp.nan))

    def forward(self, state: ModelState) -> Stack:
        return state.policy

    def begin(self, state: ModelState, h: int) -> ModelState:
        """The last of the policies ahead is new: it starts from the one before."""
        forward, newest = state.policy, h + self.block * (self.ahead - 1)
        if h > 0 and newest < self.spec.horizon:
            before = forward[newest - self.block]
            forward = forward.with_step(newest, gradient.with_units_of(before, forward[newest]))
        room = 4 * self.most * self.block * self.ahead
        self.seen, self.repairs, self.at = [], 0, h
        self.near = create_memory(self.spec, room, self.config.dynamics.history)
        return state._replace(policy=forward)

    def wants(self, state: ModelState, h: int, r: int) -> int:
        if r >= self.rounds + self.repairs:
            return 0
        if self.config.samples:  # sizes that are given are kept
            return self.config.samples
        return 0 if lost_from(state.excess) is not None else min(self.episodes(h) * 2**self.repairs, MOST)

    def reach(self, state: ModelState) -> int | None:
        return lost_from(state.excess)

    def stop(self, h: int) -> int:
        return min(h + self.block * self.ahead, self.spec.horizon)

    def recorded(self, h: int, episodes: int) -> Int[np.ndarray, "horizon n"]:
        return gradient.steps_before(self.stop(h), self.spec.horizon, episodes)

    def exploring(self, state: ModelState, h: int, r: int) -> Policy:
        forward = state.policy
        if r > self.repairs:
            return forward
        explorer = switch(forward, at=h, to=exploring_policy(forward, self.spec, self.config))
        return Mixture(forward, explorer, jnp.asarray(self.config.explore_share))

    def update(
        self, key: PRNGKeyArray, state: ModelState, online: Recorded, h: int
    ) -> tuple[ModelState, dict[str, float]]:
        keys, config = Keys(key), self.config
        excess = self.measure(online, h)
        at = self.step_to_improve(state, h, excess)
        starts = self.starts(state.policy, online, at)
        begin, stop = jnp.asarray(at), jnp.asarray(self.stop(h))
        unseen = model_error(state.dynamics, online, begin, stop, self.spec)
        memory = add_steps(state.memory, online, jnp.zeros_like(begin), stop, self.spec)
        self.near = add_steps(self.near, online, begin, stop, self.spec)
        dynamics, error = learn_dynamics(keys.dynamics, state.dynamics, memory, self.near, config.dynamics)
        objective = ThroughModel(dynamics, self.block, config.moments)
        goals = self.goal_maker.after(at, self.stop(at), self.block * self.ahead)
        policies = state.policy.block(at, self.ahead)
        policies, distances2 = gradient.descend(keys.descend, policies, starts, goals, objective, config)
        metrics = {"model_error": float(unseen), "fit_error": float(error), "off": excess, "repairs": self.repairs}
        metrics["mmd"] = gradient.own_distance(distances2, goals, self.block)
        policy, seen = state.policy.with_block(at, policies), state.excess.at[h].set(excess)
        return ModelState(policy, dynamics, memory, seen), metrics

    def step_to_improve(self, state: ModelState, h: int, excess: float) -> int:
        """This step; where its states are off, one before, each time further back."""
        spare = self.total_steps() - int(state.memory.added)
        if self.config.samples or h == 0 or excess <= FAR or self.repairs == REPAIRS or spare <= 0:
            return h
        self.repairs += 1
        return max(h - self.block * 2 ** (self.repairs - 1), 0)

    def starts(self, policy: Stack, online: Recorded, at: int) -> Starts:
        """Where step `at` begins, in all rounds of it; as many rows at every step, so that one program serves all."""
        found = Starts.of(online, at, policy[at], self.spec)
        self.seen, self.at = [*(self.seen if at == self.at else []), found], at
        rows = self.config.rounds * self.most
        return jax.tree.map(lambda *x: gradient.repeated_to(np.concatenate(x), rows), *self.seen)

    def measure(self, online: Recorded, h: int) -> float:
        """How far the roll-in's states of step `h` are from the offline ones, beyond chance."""
        offline, n = self.data.at(h), online.states.shape[1]
        size = min(COMPARED, len(offline))
        chosen = np.random.default_rng(h).choice(len(offline), size, replace=False)
        distance = distance_in(self.units, jnp.asarray(online.states[h]), jnp.asarray(offline[chosen]))
        return float(distance) - (1 / n + 1 / size) ** 0.5


def lost_from(excess: Float[Array, " horizon+1"]) -> int | None:
    """The step from which on the states are lost: they were too far off, in spite of repairs, `LOST` times in a row."""
    measured = np.flatnonzero(~np.isnan(excess))
    far = np.asarray(excess)[measured] > FAR
    for first in range(len(far) - LOST + 1):
        if far[first : first + LOST].all():
            return int(measured[first])
    return None


def exploring_policy(forward: Stack, spec: Spec, config: ModelConfig) -> Policy:
    if not (isinstance(config, VectorModelConfig) and config.explore_std):
        return spec.uniform()
    widest = lambda log_std: jnp.maximum(log_std, np.log(config.explore_std))  # noqa: E731
    return eqx.tree_at(lambda f: f.steps.log_std, forward, replace_fn=widest)


class ThroughModel(eqx.Module):
    """The next states that the model predicts; gradients go through policy and model."""

    dynamics: Dynamics
    block: int = eqx.field(static=True)
    moments: float = eqx.field(static=True)

    def distances2(self, key: PRNGKeyArray, policies: Policy, starts: Starts, goals: Goals) -> Float[Array, " k"]:
        def one_step(now: tuple[Array, Array], inputs: tuple) -> tuple[tuple[Array, Array], Float[Array, ""]]:
            (states, past), (goal, key, j) = now, inputs
            policy = policy_at(policies, j // self.block)
            predict = self.vectors if isinstance(policy, Gaussian) else self.discrete
            actions, following, seen = predict(key, policy, states, past, goal)
            distance2 = jnp.where(goal.real, unbiased_distance2(seen, goal.means), 0.0)
            return (following, past_of(states, actions, following)), distance2

        steps = jnp.arange(len(goals.real))
        keys = jax.random.split(key, len(steps))
        return jax.lax.scan(one_step, (starts.states, starts.past), (goals, keys, steps))[1]

    def vectors(
        self, key: PRNGKeyArray, policy: Policy, states: Array, past: Array, goal: Goals
    ) -> tuple[Array, Array, Array]:
        """Sampled actions, the next states, and their features."""
        actions = jnp.clip(policy.act(key, states, 0), -1.0, 1.0)
        following = self.dynamics(states, actions, past)
        return actions, following, features_of(following, goal, self.moments)

    def discrete(
        self, key: PRNGKeyArray, policy: Policy, states: Array, past: Array, goal: Goals
    ) -> tuple[Array, Array, Array]:
        """Sampled actions, the next states, and the features averaged over all actions."""
        logits = policy.logits(states)  # type: ignore[attr-defined]
        features = partial(features_of, moments=self.moments)
        every = jax.vmap(lambda a: self.dynamics(states, jnp.broadcast_to(a, logits.shape), past))(
            jnp.eye(logits.shape[1])
        )
        seen = jnp.einsum("na,anf->nf", jax.nn.softmax(logits), jax.vmap(features, (0, None))(every, goal))
        taken = jax.random.categorical(key, logits)
        following = jax.lax.stop_gradient(every[taken, jnp.arange(len(states))])
        return jax.nn.one_hot(taken, logits.shape[1]), following, seen
