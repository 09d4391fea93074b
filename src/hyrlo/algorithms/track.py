"""The forward pass with networks and, if one likes, a model: for vector-valued actions, long horizons, few samples.

For h = 0, k, 2k, … (k steps share a policy): roll in π_0 … π_{h−1}, act for k steps, and let π_h be the solution of

    min_π  Σ_{j=1…k}  MMD²( s_{h+j} under π,  D_{h+j} )

by gradient steps, starting from the policy of the steps before. How s_{h+j} depends on π is estimated in one of two ways:

`model`       a one-step model learned from all transitions so far: s_{h+j} follows from s_h, π and the model, and the
              gradient goes through all of them (reparametrised). Discrete actions: the exact mean over the last one.
`importance`  the paper's: the s_{h+1} that were seen, weighted by π(a|s) / q(a|s), with q the policy that collected (k = 1).

Collection and update alternate `rounds` times, so that the model, or q, is right where π goes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.random import fold_in
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyrlo.access import Spec, TraceModel
from hyrlo.algorithms.base import Run
from hyrlo.algorithms.dynamics import DynamicsConfig, Memory, as_vectors, create_dynamics, learn_dynamics
from hyrlo.data import ObservationDataset
from hyrlo.distances import median_bandwidth, random_features
from hyrlo.errors import HyrloError, check_positive
from hyrlo.networks import MLP, Dynamics, Whitened, whiten
from hyrlo.policies import Gaussian, Mixture, Policy, Softmax, Stack, switch

WIDTHS = (0.5, 1.0, 2.0, 4.0)  # of the kernels, in median distances: near to match details, far to feel a pull


POLICIES = 40  # at most, unless told how many steps share one
LEAST_SPREAD = 0.1  # of the states of one step, as a share of that of all states


@dataclass(frozen=True)
class TrackConfig:
    """The forward pass for `--estimator model`, and for vector-valued actions."""

    rounds: int = 2
    """Collections, each followed by an update, per policy."""
    explore: float = 0.5
    """Share of the first round's episodes whose last k actions are uniform."""
    hidden: int = 64
    """Width of the policies' two hidden layers."""
    updates: int = 300
    """Gradient steps on the policy after each collection."""
    learning_rate: float = 1e-3
    batch: int = 128
    """Online states per gradient step."""
    features: int = 256
    """Random Fourier features of the MMD."""
    whiten: Literal["all", "step"] = "all"
    """By whose spread the MMD scales the dimensions: that of all offline states, or of those of the step to match, which
    is finer where states of one step differ little, as those of a robot that is set in motion do."""
    moments: float = 0.0
    """Weight of the mean and variance of every dimension beside the random features: MMD with a sum of kernels, which
    feels a little too much spread in many dimensions better than a bell-shaped kernel does."""
    std: float = 0.3
    """Standard deviation of an action, at first."""
    std_floor: float = 0.1
    """It may fall to this and no further: matching by a model would let it vanish, and the coverage with it."""
    entropy: float = 0.0
    """Weight of the policy's entropy beside the squared MMD."""
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)

    def __post_init__(self) -> None:
        check_positive(self, "rounds", "hidden", "updates", "learning_rate", "batch", "features", "std", "std_floor")
        if not 0 <= self.explore <= 1:
            raise HyrloError(f"explore is {self.explore}; give a share from 0 to 1")


class Starts(NamedTuple):
    """What was seen at the first of the steps to learn: states, actions with the log-density they had, next states."""

    states: Float[Array, "n obs"]
    actions: Float[Array, "n act"]
    log_density: Float[Array, " n"]
    next_states: Float[Array, "n obs"]


class Goals(NamedTuple):
    """The steps that follow: mean features of their offline states, how features are made, which of the steps are real."""

    means: Float[Array, "k f"]
    frequencies: Float[Array, "k obs f"]
    shift: Float[Array, "k obs"]
    scale: Float[Array, "k obs"]
    real: Bool[Array, " k"]


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
    k = share_steps or (-(-spec.horizon // POLICIES) if estimator == "model" else 1)
    shift, scale = (jnp.asarray(x) for x in whitening(source, spec))
    policy_key, dynamics_key, feature_key = jax.random.split(fold_in(key, spec.horizon), 3)
    frequencies = jax.random.normal(feature_key, (spec.observation_size, config.features // 2))
    dynamics = create_dynamics(dynamics_key, spec, shift, scale, config.dynamics)
    memory = Memory.create(spec, config.dynamics.memory if estimator == "model" else 1)
    blank = fresh_policy(policy_key, spec, shift, scale, config)
    state = (Stack.repeat(blank, spec.horizon, k), dynamics, tuple(memory))
    phase = run.phase("forward", range(0, spec.horizon, k), state, model)
    for h in phase:
        forward, dynamics, memory = phase.state[0], phase.state[1], Memory(*phase.state[2])
        stop = min(h + k, spec.horizon)
        policy = forward[h - k] if h else blank
        goals = goals_after(source, h, stop, frequencies, shift, scale, k, config)
        near = Memory.create(spec, config.rounds * samples * k)
        seen: list[Starts] = []
        metrics: dict[str, float] = {}
        for r in range(config.rounds):
            rollout_key, learn_key, steer_key = jax.random.split(fold_in(fold_in(key, h), r), 3)
            acting: Policy = forward.with_step(h, policy)
            if r == 0 and estimator == "model":
                acting = Mixture(acting, switch(acting, at=h, to=spec.uniform()), jnp.asarray(config.explore))
            batch = model.rollout(
                rollout_key, acting, samples, record=up_to(stop, spec.horizon, samples), next_states=True, stop=stop
            )
            seen.append(starts_of(batch, h, policy, spec))
            starts = jax.tree.map(lambda *x: filled(np.concatenate(x), config.rounds * samples), *seen)
            if estimator == "model":
                memory, near = memory.add(batch, 0, stop, spec), near.add(batch, h, stop, spec)
                dynamics, error = learn_dynamics(learn_key, dynamics, memory, near, config.dynamics)
                metrics["model_error"] = float(error)
            policy, mmd, ess = steer(steer_key, policy, starts, goals, dynamics, estimator, config)
        metrics |= {"mmd": float(mmd), "ess": float(ess)}
        forward = forward.with_step(h, policy)
        state = (forward, dynamics, tuple(memory))
        phase.done(h, state, evaluate=switch(forward, at=stop, to=spec.uniform()), **metrics)
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


def goals_after(
    source: ObservationDataset,
    h: int,
    stop: int,
    frequencies: Float[Array, "obs f"],
    shift: Array,
    scale: Array,
    k: int,
    config: TrackConfig,
) -> Goals:
    """Of steps h + 1 … stop, in one shape for all h. Kernels of several widths, in median distances of each step."""
    steps = [source.padded(min(h + j, stop)) for j in range(1, k + 1)]
    padded, weights = (jnp.stack(x) for x in zip(*steps, strict=True))
    return Goals(*mean_features(padded, weights, frequencies, shift, scale, config), jnp.arange(k) < stop - h)


@eqx.filter_jit
def mean_features(
    states: Float[Array, "k m obs"],
    weights: Float[Array, "k m"],
    frequencies: Array,
    shift: Array,
    scale: Array,
    config: TrackConfig,
) -> tuple[Float[Array, "k f"], Float[Array, "k obs f"], Float[Array, "k obs"], Float[Array, "k obs"]]:
    widths = jnp.resize(jnp.asarray(WIDTHS), (frequencies.shape[1],))

    def one(args: tuple[Array, Array]) -> tuple[Array, Array, Array, Array]:
        mean = args[1] @ args[0] if config.whiten == "step" else shift
        spread = jnp.sqrt(args[1] @ (args[0] - mean) ** 2)
        own = jnp.maximum(spread, LEAST_SPREAD * scale) if config.whiten == "step" else scale
        white = whiten(args[0], mean, own)
        scaled = frequencies / (widths * jnp.maximum(median_bandwidth(white, white), 0.05))
        return args[1] @ embed(white, scaled, config.moments), scaled, mean, own

    return jax.lax.map(one, (states, weights))


def embed(white: Float[Array, "n obs"], frequencies: Float[Array, "obs f"], moments: float) -> Float[Array, "n e"]:
    """What of a state the MMD compares: random features and, if they have a weight, first and second moments."""
    bell = random_features(white, frequencies, jnp.ones(()))
    if not moments:
        return bell
    return jnp.concatenate([bell, moments**0.5 * white, (moments / 2) ** 0.5 * white**2], axis=1)


def up_to(stop: int, horizon: int, n: int) -> Int[np.ndarray, "h n"]:
    """Record every step before `stop`, the last one again and again: one shape for all, or each would compile anew."""
    return np.repeat(np.minimum(np.arange(horizon), stop - 1)[:, None], n, axis=1)


def filled(x: np.ndarray, size: int) -> np.ndarray:
    """Repeated to `size` rows, so that shapes stay the same."""
    return np.resize(x, (size, *x.shape[1:]))


def starts_of(batch: object, at: int, policy: Policy, spec: Spec) -> Starts:
    states, actions, following = (
        jnp.asarray(getattr(batch, name)[at]) for name in ("states", "actions", "next_states")
    )
    density = log_density(policy, states, actions) if isinstance(policy, Gaussian) else jnp.zeros(len(states))
    return Starts(states, as_vectors(actions, spec), density, following)


log_density = eqx.filter_jit(Gaussian.log_density)


@eqx.filter_jit
def steer(
    key: PRNGKeyArray,
    policy: Policy,
    starts: Starts,
    goals: Goals,
    dynamics: Dynamics,
    estimator: Literal["model", "importance"],
    config: TrackConfig,
) -> tuple[Policy, Float[Array, ""], Float[Array, ""]]:
    """Gradient steps on the policy; the MMD to the offline states as this estimator sees it, and its effective sample size."""
    everything = jnp.arange(len(starts.states))
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adam(optax.cosine_decay_schedule(config.learning_rate, config.updates, alpha=0.05)),
    )

    def distances2(key: PRNGKeyArray, policy: Policy, batch: Int[Array, " b"]) -> Float[Array, " k"]:
        """Squared MMD at each step."""
        start = jax.tree.map(lambda x: x[batch], starts)

        def features(states: Float[Array, "n obs"], goal: Goals) -> Float[Array, "n f"]:
            return embed(whiten(states, goal.shift, goal.scale), goal.frequencies, config.moments)

        if estimator == "importance":
            first = jax.tree.map(lambda x: x[0], goals)
            seen = importance(policy, start)[:, None] * features(start.next_states, first)
            return jnp.sum((seen.mean(axis=0) - goals.means[0]) ** 2)[None]

        def one_step(states: Array, inputs: tuple[Goals, PRNGKeyArray]) -> tuple[Array, Float[Array, ""]]:
            goal, key = inputs
            if isinstance(policy, Gaussian):
                states = dynamics(states, jnp.clip(policy.act(key, states, 0), -1.0, 1.0))
                seen = features(states, goal)
            else:
                logits = policy.logits(states)  # type: ignore[attr-defined]
                every = jax.vmap(lambda a: dynamics(states, jnp.broadcast_to(a, logits.shape)))(
                    jnp.eye(logits.shape[1])
                )
                each = jax.vmap(features, (0, None))(every, goal)
                seen = jnp.einsum("na,anf->nf", jax.nn.softmax(logits), each)
                taken = jax.random.categorical(key, logits)
                states = jax.lax.stop_gradient(every[taken, jnp.arange(len(states))])
            return states, jnp.where(goal.real, unbiased_distance2(seen, goal.means), 0.0)

        keys = jax.random.split(key, len(goals.real))
        return jax.lax.scan(one_step, start.states, (goals, keys))[1]

    def loss_of(policy: Policy, key: PRNGKeyArray, batch: Int[Array, " b"]) -> Float[Array, ""]:
        return distances2(key, policy, batch).sum() - config.entropy * entropy(policy, starts.states[batch])

    def update(carry: tuple, t: Int[Array, ""]) -> tuple[tuple, None]:
        policy, state = carry
        batch_key, loss_key = jax.random.split(fold_in(key, t))
        batch = jax.random.randint(batch_key, (config.batch,), 0, len(everything))
        updates, state = optimiser.update(jax.grad(loss_of)(policy, loss_key, batch), state)
        return (above_floor(optax.apply_updates(policy, updates), config), state), None

    (policy, _), _ = jax.lax.scan(update, (policy, optimiser.init(policy)), jnp.arange(config.updates))
    end = distances2(key, policy, everything)
    weights = importance(policy, starts) if estimator == "importance" else jnp.ones(1)
    ess = weights.sum() ** 2 / jnp.maximum((weights**2).sum(), 1e-12) / len(weights)
    return policy, jnp.sqrt(jnp.maximum(end.sum() / goals.real.sum(), 0.0)), ess


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


def unbiased_distance2(seen: Float[Array, "n f"], mean: Float[Array, " f"]) -> Float[Array, ""]:
    """‖E[seen] − mean‖² without the share of each sample in its own mean, which would reward a policy for less spread."""
    n, total = len(seen), seen.sum(axis=0)
    return (total @ total - jnp.sum(seen**2)) / (n * (n - 1)) - 2 * total @ mean / n + mean @ mean
