"""The forward pass with networks and, if one likes, a model: for vector-valued actions, long horizons, few samples.

For h = 0, k, 2k, … (k steps share a policy): roll in π_0 … π_{h−1}, act for n·k steps, and let π_h be the first of the n
policies (`ahead`) that solve

    min_π  Σ_{j=1…n·k}  MMD²( s_{h+j} under π,  D_{h+j} )

by gradient steps, starting from the policies of the steps before. How s_{h+j} depends on π is estimated in one of two ways:

`model`       a one-step model learned from all transitions so far: s_{h+j} follows from s_h, π and the model, and the
              gradient goes through all of them (reparametrised). Discrete actions: the exact mean over the last one.
`importance`  the paper's: the s_{h+1} that were seen, weighted by π(a|s) / q(a|s), q the policy that collected (n = k = 1).

Collection and update alternate `rounds` times, so that the model, or q, is right where π goes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.random import fold_in
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.access import Recorded, Spec, TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.errors import HyrloError, check_positive
from hyrlo.core.networks import MLP, Dynamics, Whitened
from hyrlo.core.policies import Gaussian, Mixture, Policy, Softmax, Stack, switch
from hyrlo.core.whitening import Whitening
from hyrlo.data.states import ObservationDataset
from hyrlo.forward.dynamics import (
    DynamicsConfig,
    add_steps,
    as_vectors,
    create_dynamics,
    create_memory,
    learn_dynamics,
    past_of,
    pasts,
)
from hyrlo.forward.goals import Goals, features_of, goals_after, own_spread, unbiased_distance2

POLICIES = 40  # at most, unless told how many steps share one


@dataclass(frozen=True)
class TrackConfig:
    """The forward pass for `--estimator model`, and for vector-valued actions."""

    rounds: int = 2
    """Collections, each followed by an update, per policy."""
    explore: float = 0.5
    """Share of the first round's episodes whose actions are uniform from step h on."""
    ahead: int = 1
    """Policies that are found together, to match the steps of all of them; the first is kept, the others are where the
    next ones begin. Actions that are felt later than in the very next state want more than 1."""
    hidden: int = 64
    """Width of the policies' two hidden layers."""
    updates: int = 300
    """Gradient steps on the policy after each collection."""
    learning_rate: float = 1e-3
    batch: int = 128
    """Online states per gradient step."""
    features: int = 256
    """Random Fourier features of the MMD."""
    whiten: Literal["all", "step", "joint"] = "all"
    """By whose spread the MMD and the policies scale the dimensions: that of all offline states, or of those of the step,
    which is finer where states of one step differ little, as those of a robot that is set in motion do. `joint` is that
    of the step, and the MMD also takes correlations out: what dimensions have in common, such as the place of an object
    that all of a hand follows, would hide how they differ, such as its grip."""
    moments: float = 0.0
    """Weight of the mean and variance of every dimension beside the random features: MMD with a sum of kernels, which
    feels a little too much spread in many dimensions better than a bell-shaped kernel does."""
    std: float = 0.3
    """Standard deviation of an action, at first."""
    std_floor: float = 0.1
    """It may fall to this and no further: matching by a model would let it vanish, and the coverage with it."""
    explore_std: float = 0.0
    """If above 0, action vectors that explore are the policy's with at least this standard deviation, not uniform."""
    entropy: float = 0.0
    """Weight of the policy's entropy beside the squared MMD."""
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)

    def __post_init__(self) -> None:
        check_positive(
            self, "rounds", "ahead", "hidden", "updates", "learning_rate", "batch", "features", "std", "std_floor"
        )
        if not 0 <= self.explore <= 1:
            raise HyrloError(f"explore is {self.explore}; give a share from 0 to 1")
        for name in ("explore_std", "moments", "entropy"):
            if not getattr(self, name) >= 0:
                raise HyrloError(f"{name} is {getattr(self, name)}; give 0 or more")
        if self.batch < 2:
            raise HyrloError(f"batch is {self.batch}; give at least 2")


ROBOT = TrackConfig(
    rounds=1,  # with three steps ahead, a policy is updated after three collections all the same
    ahead=3,
    updates=500,
    batch=256,
    features=512,
    whiten="joint",
    moments=0.01,
    explore_std=0.3,
    dynamics=DynamicsConfig(hidden=256, updates=1000, memory=200_000, history=True, near=0.5, least_step=0.02),
)
"""For many joints that are set in motion together, and of which positions are observed."""


class Starts(NamedTuple):
    """What was seen at the first of the steps to learn: states, actions with the log-density they had, next states; and
    in the step before."""

    states: Float[Array, "n obs"]
    actions: Float[Array, "n act"]
    log_density: Float[Array, " n"]
    next_states: Float[Array, "n obs"]
    past: Float[Array, "n past"]


def track(
    model: TraceModel,
    source: ObservationDataset,
    config: TrackConfig,
    estimator: Literal["model", "importance"],
    samples: int,
    share_steps: int,
    key: PRNGKeyArray,
    run: Run,
) -> Stack:
    """The forward policy π^f; `share_steps` is k, 0 for as many as make `POLICIES` at most."""
    spec = model.spec
    if config.ahead > 1 and not spec.action_size:
        raise HyrloError(f"track.ahead is {config.ahead}; looking ahead is for action vectors: set it to 1")
    k = share_steps or (-(-spec.horizon // POLICIES) if estimator == "model" else 1)
    shift, scale = (jnp.asarray(x) for x in whitening(source, spec))
    policy_key, dynamics_key, feature_key = jax.random.split(fold_in(key, spec.horizon), 3)
    frequencies = jax.random.normal(feature_key, (spec.observation_size, config.features // 2))
    dynamics = create_dynamics(dynamics_key, spec, Whitening(shift, scale), config.dynamics)
    history = config.dynamics.history
    memory = create_memory(spec, config.dynamics.memory if estimator == "model" else 1, history)
    start = fresh_policies(policy_key, source, spec, k, shift, scale, config)
    phase = run.phase("forward", range(0, spec.horizon, k), (start, dynamics, memory), model)
    for h in phase:
        forward, dynamics, memory = phase.state
        stop = min(h + k * config.ahead, spec.horizon)
        newest = h + k * (config.ahead - 1)
        if h > 0 and newest < spec.horizon:
            forward = forward.with_step(newest, begun_from(forward[newest - k], forward[newest]))
        goals = goals_after(source, h, stop, frequencies, shift, scale, spec.ends, config, k * config.ahead)
        near = create_memory(spec, config.rounds * samples * k * config.ahead, history)
        seen: list[Starts] = []
        metrics: dict[str, float] = {}
        for r in range(config.rounds):
            rollout_key, learn_key, steer_key = jax.random.split(fold_in(fold_in(key, h), r), 3)
            acting: Policy = forward
            if r == 0 and estimator == "model":
                wild = switch(forward, at=h, to=exploring(forward, spec, config))
                acting = Mixture(forward, wild, jnp.asarray(config.explore))
            batch = model.record(rollout_key, acting, samples, up_to(stop, spec.horizon, samples), stop=stop)
            seen.append(starts_of(batch, h, forward[h], spec))
            starts = jax.tree.map(lambda *x: filled(np.concatenate(x), config.rounds * samples), *seen)
            if estimator == "model":
                memory = add_steps(memory, batch, jnp.asarray(0), jnp.asarray(stop), spec)
                near = add_steps(near, batch, jnp.asarray(h), jnp.asarray(stop), spec)
                dynamics, error = learn_dynamics(learn_key, dynamics, memory, near, config.dynamics)
                metrics["model_error"] = float(error)
            some, mmd, ess = steer(
                steer_key, forward.block(h, config.ahead), starts, goals, dynamics, estimator, k, config
            )
            forward = forward.with_block(h, some)
        metrics |= {"mmd": float(mmd), "ess": float(ess)}
        ready = min(h + k, spec.horizon)
        state = (forward, dynamics, memory)
        phase.done(h, state, evaluate=switch(forward, at=ready, to=spec.uniform()), **metrics)
    return phase.state[0]


def whitening(source: ObservationDataset, spec: Spec) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the offline states; of episodes that go on, where they can end."""
    states = np.concatenate(source.steps)
    if spec.ends:
        states = states[states[:, -1] < 0.5]
    scale = states.std(axis=0)
    shift, scale = states.mean(axis=0), np.where(scale > 1e-6, scale, 1.0)
    return shift.astype(np.float32), scale.astype(np.float32)


def fresh_policy(key: PRNGKeyArray, spec: Spec, shift: Array, scale: Array, config: TrackConfig) -> Policy:
    sizes = (spec.observation_size, config.hidden, config.hidden, spec.action_size or spec.actions)
    network = Whitened(MLP.create(key, sizes, last_scale=0.01), shift, scale)
    if not spec.action_size:
        return Softmax(network)
    return Gaussian(network, jnp.full(spec.action_size, np.log(config.std)))


def fresh_policies(
    key: PRNGKeyArray,
    source: ObservationDataset,
    spec: Spec,
    k: int,
    shift: Array,
    scale: Array,
    config: TrackConfig,
) -> Stack:
    """The same one for all steps, but for the spread by which each scales what it sees."""
    if config.whiten == "all":
        return Stack.repeat(fresh_policy(key, spec, shift, scale, config), spec.horizon, k)
    spreads = [own_spread(*source.padded(h), scale, spec.ends) for h in range(0, spec.horizon, k)]
    own_shift, own_scale = (jnp.stack(x) for x in zip(*spreads, strict=True))
    return Stack(eqx.filter_vmap(lambda a, b: fresh_policy(key, spec, a, b, config))(own_shift, own_scale), k)


def begun_from(before: Policy, own: Policy) -> Policy:
    """The weights of the policy of the steps before, but with one's own mean and spread: the same action for a state that
    is as far from the others of its step."""
    units = lambda p: (p.network.shift, p.network.scale)  # noqa: E731
    return eqx.tree_at(units, before, units(own))


def exploring(forward: Stack, spec: Spec, config: TrackConfig) -> Policy:
    if not (spec.action_size and config.explore_std):
        return spec.uniform()
    widest = lambda log_std: jnp.maximum(log_std, np.log(config.explore_std))  # noqa: E731
    return eqx.tree_at(lambda f: f.steps.log_std, forward, replace_fn=widest)


def up_to(stop: int, horizon: int, n: int) -> Int[np.ndarray, "h n"]:
    """Record every step before `stop`, the last one again and again: one shape for all, or each would compile anew."""
    return np.repeat(np.minimum(np.arange(horizon), stop - 1)[:, None], n, axis=1)


def filled(x: np.ndarray, size: int) -> np.ndarray:
    """Repeated to `size` rows, so that shapes stay the same."""
    return np.resize(x, (size, *x.shape[1:]))


def starts_of(batch: Recorded, at: int, policy: Policy, spec: Spec) -> Starts:
    states, actions, following = (jnp.asarray(x[at]) for x in (batch.states, batch.actions, batch.next_states))
    density = log_density(policy, states, actions) if isinstance(policy, Gaussian) else jnp.zeros(len(states))
    past = pasts(jnp.asarray(batch.states), as_vectors(jnp.asarray(batch.actions), spec))[at]
    return Starts(states, as_vectors(actions, spec), density, following, past)


log_density = eqx.filter_jit(Gaussian.log_density)


@eqx.filter_jit
def steer(
    key: PRNGKeyArray,
    policies: Policy,
    starts: Starts,
    goals: Goals,
    dynamics: Dynamics,
    estimator: Literal["model", "importance"],
    k: int,
    config: TrackConfig,
) -> tuple[Policy, Float[Array, ""], Float[Array, ""]]:
    """Gradient steps on the policies (a leading axis, each of k steps); the MMD to the offline states as this estimator
    sees it, and its effective sample size."""
    everything = jnp.arange(len(starts.states))
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adam(optax.cosine_decay_schedule(config.learning_rate, config.updates, alpha=0.05)),
    )

    def distances2(key: PRNGKeyArray, policies: Policy, batch: Int[Array, " b"]) -> Float[Array, " k"]:
        """Squared MMD at each step."""
        start = jax.tree.map(lambda x: x[batch], starts)

        features = partial(features_of, moments=config.moments)
        if estimator == "importance":
            first = jax.tree.map(lambda x: x[0], goals)
            seen = importance(nth(policies, 0), start)[:, None] * features(start.next_states, first)
            return jnp.sum((seen.mean(axis=0) - goals.means[0]) ** 2)[None]

        def one_step(now: tuple[Array, Array], inputs: tuple) -> tuple[tuple[Array, Array], Float[Array, ""]]:
            (states, past), (goal, key, j) = now, inputs
            policy = nth(policies, j // k)
            if isinstance(policy, Gaussian):
                actions = jnp.clip(policy.act(key, states, 0), -1.0, 1.0)
                following = dynamics(states, actions, past)
                seen = features(following, goal)
            else:
                logits = policy.logits(states)  # type: ignore[attr-defined]
                every = jax.vmap(lambda a: dynamics(states, jnp.broadcast_to(a, logits.shape), past))(
                    jnp.eye(logits.shape[1])
                )
                each = jax.vmap(features, (0, None))(every, goal)
                seen = jnp.einsum("na,anf->nf", jax.nn.softmax(logits), each)
                taken = jax.random.categorical(key, logits)
                actions = jax.nn.one_hot(taken, logits.shape[1])
                following = jax.lax.stop_gradient(every[taken, jnp.arange(len(states))])
            distance2 = jnp.where(goal.real, unbiased_distance2(seen, goal.means), 0.0)
            return (following, past_of(states, actions, following)), distance2

        steps = jnp.arange(len(goals.real))
        keys = jax.random.split(key, len(steps))
        return jax.lax.scan(one_step, (start.states, start.past), (goals, keys, steps))[1]

    def loss_of(policies: Policy, key: PRNGKeyArray, batch: Int[Array, " b"]) -> Float[Array, ""]:
        unsure = jax.vmap(lambda policy: entropy(policy, starts.states[batch]))(policies).sum()
        return distances2(key, policies, batch).sum() - config.entropy * unsure

    def update(carry: tuple, t: Int[Array, ""]) -> tuple[tuple, None]:
        policies, state = carry
        batch_key, loss_key = jax.random.split(fold_in(key, t))
        batch = jax.random.randint(batch_key, (config.batch,), 0, len(everything))
        updates, state = optimiser.update(jax.grad(loss_of)(policies, loss_key, batch), state)
        return (above_floor(optax.apply_updates(policies, updates), config), state), None

    (policies, _), _ = jax.lax.scan(update, (policies, optimiser.init(policies)), jnp.arange(config.updates))
    end = distances2(key, policies, everything)
    weights = importance(nth(policies, 0), starts) if estimator == "importance" else jnp.ones(1)
    ess = weights.sum() ** 2 / jnp.maximum((weights**2).sum(), 1e-12) / len(weights)
    own = end[:k].sum() / goals.real[:k].sum()
    return policies, jnp.sqrt(jnp.maximum(own, 0.0)), ess


def nth(policies: Policy, i: int | Int[Array, ""]) -> Policy:
    return jax.tree.map(lambda x: x[i], policies)


def above_floor(policy: Policy, config: TrackConfig) -> Policy:
    if not isinstance(policy, Gaussian):
        return policy
    return eqx.tree_at(lambda p: p.log_std, policy, jnp.clip(policy.log_std, np.log(config.std_floor), 0.0))


def importance(policy: Policy, starts: Starts) -> Float[Array, " n"]:
    """π(a|s) / q(a|s)."""
    assert isinstance(policy, Gaussian)
    return jnp.exp(jnp.clip(policy.log_density(starts.states, starts.actions) - starts.log_density, -20.0, 20.0))


def entropy(policy: Policy, states: Float[Array, "n obs"]) -> Float[Array, ""]:
    if isinstance(policy, Gaussian):
        return policy.log_std.sum()
    assert isinstance(policy, Softmax)
    log_pi = jax.nn.log_softmax(policy.logits(states))
    return -jnp.mean(jnp.sum(jnp.exp(log_pi) * log_pi, axis=1))
