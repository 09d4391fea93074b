"""Algorithm 6, Inter-FAIL: a stationary policy whose discounted states are those of an interactive offline distribution.

For t = 1 … T: roll in π^t, stop at h ∼ Geom(1 − γ) in s, act uniformly, and see s′ (online). Ask the offline distribution
about s: it plays an action of its own, and tells the next state alone (offline). Then, on all samples so far,

    u(π, g) = Ê_on[ A·π(a|s) g(s′) ] − Ê_off[ g(s′) ],
    g^t = argmax_{g ∈ G} u(π^t, g),          π^{t+1} = argmin_π Σ_{τ ≤ t} u(π, g^τ) + φ(π),

and return the π^t with the least u^t = u(π^t, g^t). States are one-hot, so a policy is a table and both oracles are known
in closed form. φ is the negative entropy over η, averaged over the states seen: π^{t+1}(a|s) ∝ exp(−η Σ_τ cost_τ(s, a)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.access import InteractiveModel, Recorded, TraceModel, require_interactive
from hyrlo.core.algorithm import Run
from hyrlo.core.keys import Keys
from hyrlo.core.networks import MLP
from hyrlo.core.policies import Policy, Softmax
from hyrlo.core.ranges import Count, Options, Positive, ShareBelowOne
from hyrlo.core.variants import from_presets


@dataclass(frozen=True)
class InterFailConfig(Options):
    """Inter-FAIL."""

    iterations: Count = 600
    """Number of iterations T."""
    samples: Count = 50
    """Episodes, and as many queries, per iteration; the paper's is 1."""
    discriminators: Literal["mmd", "all", "finite"] = "mmd"
    """`mmd`: the unit ball of the kernel of one-hot states; `all`: every function from −1 to 1; `finite`: random ones."""
    functions: Count = 64
    """`finite`: how many, each with its negative."""
    eta: Positive | None = None
    """Learning rate of the policy player; None: √(2 log A / T)."""
    burn_in: ShareBelowOne = 0.5
    """Share of the iterations whose policies are not returned. On few samples u^t is small by chance; 0 is the paper's."""
    points: Count = 20
    """Points of the curve, each with an evaluation and a checkpoint."""


PRESETS = {
    "paper": InterFailConfig(iterations=5000, samples=1, burn_in=0.0),
    "fast": InterFailConfig(),
}
configure = from_presets(PRESETS, "inter-fail")


class InterFailState(NamedTuple):
    """The samples so far as counts, both players, and the best policy."""

    online: Float[Array, "states actions states"]
    offline: Float[Array, " states"]
    witnesses: Float[Array, " states"]
    """Σ_τ g^τ."""
    logits: Float[Array, "states actions"]
    """Of π^t."""
    best: Float[Array, "states actions"]
    least: Float[Array, ""]
    """u of the best."""
    best_iteration: Int[Array, ""]


def inter_fail(model: TraceModel, source: None, config: InterFailConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """Algorithm 6. The offline distribution is part of the model."""
    interactive = require_interactive(model, "inter-fail")
    functions = (
        finite_class(Keys(key).functions, model.spec.observation_size, config)
        if config.discriminators == "finite"
        else None
    )
    return match_states(interactive, functions, config, key, run)


def match_states(
    model: InteractiveModel,
    functions: Float[Array, "k states"] | None,
    config: InterFailConfig,
    key: PRNGKeyArray,
    run: Run,
) -> Policy:
    """Algorithm 6 with a given finite class of discriminators, where the config asks for one."""
    spec, uniform = model.spec, model.spec.uniform()
    points = min(config.points, config.iterations)
    phase = run.phase("forward", range(points), new_game(spec.observation_size, spec.actions), model)
    model.queries.steps = int(phase.state.offline.sum())  # those of the sessions before, if this one resumes
    for point in phase:
        game = phase.state
        for t in range(point * config.iterations // points, (point + 1) * config.iterations // points):
            keys = Keys(key).at(t)
            online = model.roll_in(keys.rollout, table(game.logits), uniform, config.samples)  # s, a, s′ ∼ π^t ∘_h unif
            offline = model.offline_next(keys.query, online.states)  # s′ ∼ μ(s)
            game, u = play_round(game, online, offline, functions, jnp.asarray(t), config)
        metrics = {"iteration": t, "u": float(u), "queries": model.queries.steps}
        phase.done(spec.horizon, game, evaluate=table(game.logits), **metrics)
    return table(phase.state.best)


@eqx.filter_jit
def play_round(
    game: InterFailState,
    new: Recorded,
    offline: Float[Array, "n states"],
    functions: Float[Array, "k states"] | None,
    t: Int[Array, ""],
    config: InterFailConfig,
) -> tuple[InterFailState, Float[Array, ""]]:
    """New samples to the old, then both oracles: the game with π^{t+1}, and u^t."""
    d_on = game.online.at[new.states.argmax(axis=1), new.actions, new.next_states.argmax(axis=1)].add(1.0)
    d_off = game.offline + offline.sum(axis=0)
    actions = d_on.shape[1]
    weights = actions * jax.nn.softmax(game.logits)
    difference = jnp.einsum("sa,sat->t", weights, d_on) / d_on.sum() - d_off / d_off.sum()
    witness = best_response(difference, functions, config.discriminators)
    u = witness @ difference

    witnesses = game.witnesses + witness
    seen = jnp.maximum(d_on.sum(axis=(1, 2)), 1.0)
    cost = actions * (d_on @ witnesses) / seen[:, None]  # Σ_τ u(π, g^τ) = Ê_s Σ_a π(a|s) cost(s, a) − …
    eta = jnp.sqrt(2 * jnp.log(actions) / config.iterations) if config.eta is None else config.eta

    better = (u < game.least) & (t >= int(config.burn_in * config.iterations))
    return InterFailState(
        online=d_on,
        offline=d_off,
        witnesses=witnesses,
        logits=-eta * cost,
        best=jnp.where(better, game.logits, game.best),
        least=jnp.where(better, u, game.least),
        best_iteration=jnp.where(better, t, game.best_iteration),
    ), u


def best_response(
    difference: Float[Array, " states"], functions: Float[Array, "k states"] | None, kind: str
) -> Float[Array, " states"]:
    """The discriminator with the largest mean difference."""
    if kind == "mmd":
        return difference / jnp.maximum(jnp.linalg.norm(difference), 1e-12)
    if kind == "all":
        return jnp.sign(difference)
    assert functions is not None
    gaps = functions @ difference
    chosen = jnp.argmax(jnp.abs(gaps))
    return jnp.sign(gaps[chosen]) * functions[chosen]


def finite_class(key: PRNGKeyArray, states: int, config: InterFailConfig) -> Float[Array, "k states"]:
    """Random functions from −1 to 1; each stands for its negative, too."""
    return jax.random.uniform(key, (config.functions, states), minval=-1.0, maxval=1.0)


def new_game(states: int, actions: int) -> InterFailState:
    nothing, uniform = jnp.zeros(states), jnp.zeros((states, actions))
    return InterFailState(
        jnp.zeros((states, actions, states)), nothing, nothing, uniform, uniform, jnp.asarray(jnp.inf), jnp.asarray(-1)
    )


def table(logits: Float[Array, "states actions"]) -> Softmax:
    """The policy on one-hot states."""
    return Softmax(MLP((logits,), (jnp.zeros(logits.shape[1]),)))
