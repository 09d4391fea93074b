"""FAIL's estimator with a learned model: for action vectors, long horizons and few samples.

For h = 0, k, 2k, … (k steps share a policy): roll in π_0 … π_{h−1}, act for n·k steps, and let π_h be the first of the n
policies (`ahead`) that solve

    min_π  Σ_{j=1…n·k}  MMD²( s_{h+j} under π,  D_{h+j} )

by gradient steps. A one-step model is learned from all transitions so far: s_{h+j} follows from s_h, π and the model, and
the gradient goes through all of them (reparametrised). For discrete actions it takes the exact mean over the last action.
Collection and update alternate `rounds` times, so that the model is right where π goes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

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
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import StateUnits
from hyrlo.forward import gradient
from hyrlo.forward.dynamics import DynamicsConfig, add_steps, create_dynamics, create_memory, learn_dynamics, past_of
from hyrlo.forward.fail import Estimator
from hyrlo.forward.goals import Goals, features_of, unbiased_distance2
from hyrlo.forward.gradient import GaussianConfig, GradientConfig, Starts, policy_at

POLICIES = 40  # the most, where `share_steps` is 0


@dataclass(frozen=True)
class ModelConfig(GradientConfig):
    """Forward pass by a learned model."""

    share_steps: int = 0
    """Number of consecutive steps that share a policy; 0: as many as give at most 40 policies."""
    explore_share: float = 0.5
    """Share of the first round's episodes whose actions are uniform from step h on."""
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.explore_share <= 1:
            raise HyrloError(f"explore_share is {self.explore_share}; give a share from 0 to 1")
        if self.share_steps < 0:
            raise HyrloError(f"share_steps is {self.share_steps}; give 0 or more")

    def estimator(self, spec: Spec, data: ObservationDataset, key: PRNGKeyArray) -> ModelEstimator:
        return ModelEstimator(spec, data, self, key)


@dataclass(frozen=True)
class VectorModelConfig(GaussianConfig, ModelConfig):
    """Forward pass by a learned model, for action vectors."""

    ahead: int = 1
    """Number of policies that are found together, to match the steps of all of them. The first is kept; the others are
    where the next ones start. Give more than 1 where actions show later than in the very next state."""
    explore_std: float = 0.0
    """If above 0, exploring actions are the policy's with at least this standard deviation, instead of uniform."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_std()
        if self.ahead < 1:
            raise HyrloError(f"ahead is {self.ahead}; give a number above 0")
        if not self.explore_std >= 0:
            raise HyrloError(f"explore_std is {self.explore_std}; give 0 or more")


PRESETS = {"fast": ModelConfig()}
VECTOR_PRESETS = {"fast": VectorModelConfig()}
MOTION = replace(
    VectorModelConfig(),
    samples=600,
    share_steps=1,
    rounds=1,  # with three steps ahead, a policy is updated after three collections all the same
    ahead=3,
    updates=500,
    batch=256,
    features=512,
    units="joint",
    moments=0.01,
    explore_std=0.3,
    dynamics=DynamicsConfig(hidden=256, updates=1000, memory=200_000, history=True, near=0.5, least_step=0.02),
)
"""For many joints that move together and whose positions are observed. Chosen on the Adroit hammer."""


class ModelEstimator(Estimator):
    """A learned one-step model, and policies by gradient descent through it."""

    def __init__(self, spec: Spec, data: ObservationDataset, config: ModelConfig, key: PRNGKeyArray):
        if isinstance(config, VectorModelConfig) != bool(spec.action_size):
            raise HyrloError("ModelConfig is for discrete actions, VectorModelConfig for action vectors")
        self.spec, self.data, self.config, self.samples = spec, data, config, config.samples
        self.block = config.share_steps or -(-spec.horizon // POLICIES)
        self.ahead = config.ahead if isinstance(config, VectorModelConfig) else 1
        self.units = StateUnits.of_steps(data.steps, spec.ends)
        self.rounds, self.keys = config.rounds, Keys(key)
        self.goal_maker = gradient.goal_maker(self.keys.features, data, spec, self.units, config)
        self.seen: list[Starts] = []

    def start(self) -> tuple:
        config, spec = self.config, self.spec
        dynamics = create_dynamics(self.keys.dynamics, spec, self.units.whitening, config.dynamics)
        memory = create_memory(spec, config.dynamics.memory, config.dynamics.history)
        policies = gradient.initial_policies(self.keys.policy, self.data, spec, self.block, self.units, config)
        return policies, dynamics, memory

    def forward(self, state: tuple) -> Stack:
        return state[0]

    def begin(self, state: tuple, h: int) -> tuple:
        """The last of the policies ahead is new: it starts from the one before."""
        forward, *others = state
        newest = h + self.block * (self.ahead - 1)
        if h > 0 and newest < self.spec.horizon:
            before = forward[newest - self.block]
            forward = forward.with_step(newest, gradient.with_units_of(before, forward[newest]))
        self.goals = self.goal_maker.after(h, self.stop(h), self.block * self.ahead)
        room = self.config.rounds * self.config.samples * self.block * self.ahead
        self.seen, self.near = [], create_memory(self.spec, room, self.config.dynamics.history)
        return forward, *others

    def stop(self, h: int) -> int:
        return min(h + self.block * self.ahead, self.spec.horizon)

    def recorded(self, h: int) -> Int[np.ndarray, "horizon n"]:
        return gradient.steps_before(self.stop(h), self.spec.horizon, self.config.samples)

    def exploring(self, state: tuple, h: int, r: int) -> Policy:
        forward = state[0]
        if r > 0:
            return forward
        explorer = switch(forward, at=h, to=exploring_policy(forward, self.spec, self.config))
        return Mixture(forward, explorer, jnp.asarray(self.config.explore_share))

    def update(self, key: PRNGKeyArray, state: tuple, online: Recorded, h: int) -> tuple[tuple, dict[str, float]]:
        keys = Keys(key)
        (forward, dynamics, memory), config = state, self.config
        self.seen.append(Starts.of(online, h, forward[h], self.spec))
        rows = config.rounds * config.samples
        starts = jax.tree.map(lambda *x: gradient.repeated_to(np.concatenate(x), rows), *self.seen)
        begin, stop = jnp.asarray(h), jnp.asarray(self.stop(h))
        memory = add_steps(memory, online, jnp.zeros_like(begin), stop, self.spec)
        self.near = add_steps(self.near, online, begin, stop, self.spec)
        dynamics, error = learn_dynamics(keys.dynamics, dynamics, memory, self.near, config.dynamics)
        objective = ThroughModel(dynamics, self.block, config.moments)
        policies = forward.block(h, self.ahead)
        policies, distances2 = gradient.descend(keys.descend, policies, starts, self.goals, objective, config)
        mmd = gradient.own_distance(distances2, self.goals, self.block)
        return (forward.with_block(h, policies), dynamics, memory), {"model_error": float(error), "mmd": mmd}


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
