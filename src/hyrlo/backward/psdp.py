"""PSDP, with a reset model (Algorithm 1) and with a trace model and a roll-in policy (Algorithm 2).

For h = H−1 … 0: from states of step h, act uniformly, follow π_{h+1:H} to the end, regress the return on (s_h, a_h),

    f_h = argmin_f Σ_n ( f(s_h, a_h) − Σ_{τ ≥ h} r_τ )²,        π_h(s) = argmax_a f_h(s, a).

The two algorithms differ in one line: where the states of step h come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax.random import fold_in
from jaxtyping import PRNGKeyArray

from hyrlo.core.access import Recorded, Spec, TraceModel, require_reset
from hyrlo.core.algorithm import Run
from hyrlo.core.errors import HyrloError
from hyrlo.core.keys import Keys
from hyrlo.core.latents import LatentCounts
from hyrlo.core.policies import Greedy, Policy, Stack, switch
from hyrlo.core.ranges import Count, Options
from hyrlo.core.regression import FitConfig, LatentProjection, LatentSgd, create_q, fit_q
from hyrlo.core.variants import Choice, from_presets
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import StateUnits

Collect = Callable[[PRNGKeyArray, int, Policy, int], Recorded]
"""Samples (s_h, a_h, return) of step h: key, h, π_{h+1:H} and how many."""


@dataclass(frozen=True)
class PsdpConfig(Options):
    """Backward pass by PSDP: improve from the last step to the first."""

    samples: Count = 5000
    """Online episodes per step (per block of steps that share a Q-function, twice)."""
    share_steps: Count = 1
    """Number of consecutive steps that share a Q-function, learned from all of them: for long horizons."""
    fit: FitConfig | LatentCounts = field(default_factory=LatentProjection)


@dataclass(frozen=True)
class ResetPsdpConfig(PsdpConfig):
    """PSDP with a reset model."""

    offline_samples: Count = 2000
    """Offline states used per step (all, if there are fewer)."""


PAPER_FIT = LatentSgd(updates=1500, learning_rate=1e-3, batch=128)
TRACE_PRESETS = {
    "paper": PsdpConfig(samples=5000, fit=PAPER_FIT),
    "fast": PsdpConfig(samples=1000),
    "lean": PsdpConfig(samples=800),
}
PRESETS = {name: ResetPsdpConfig(c.samples, c.share_steps, c.fit) for name, c in TRACE_PRESETS.items()}


def configure(choice: Choice) -> ResetPsdpConfig:
    """For PSDP with a reset model: latent states are counted, if nothing else is asked for."""
    return ResetPsdpConfig(samples=1000, fit=LatentCounts()) if choice.open else choice.pick(PRESETS, "psdp")


configure_trace = from_presets(TRACE_PRESETS, "psdp-trace")


def psdp(model: TraceModel, source: ObservationDataset, config: PsdpConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """Algorithm 1: states of step h are offline states, to which the reset model is reset."""
    check_discrete(model.spec)
    reset_model = require_reset(model, "psdp")
    uniform = model.spec.uniform()

    def collect(key: PRNGKeyArray, h: int, backward: Policy, samples: int) -> Recorded:
        keys = Keys(key)
        states = jax.random.choice(keys.states, jnp.asarray(source.at(h)), (samples,))
        return reset_model.rollout_from(keys.rollout, states, switch(uniform, at=h + 1, to=backward), at=h)

    return improve_backwards(model, collect, uniform, config, key, run)


def psdp_trace(model: TraceModel, source: Policy, config: PsdpConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """Algorithm 2: states of step h are those the roll-in policy `source` reaches."""
    check_discrete(model.spec)
    uniform = model.spec.uniform()

    def collect(key: PRNGKeyArray, h: int, backward: Policy, samples: int) -> Recorded:
        policy = switch(source, at=h, to=switch(uniform, at=h + 1, to=backward))  # π^f ∘_h unif ∘_{h+1} π^b
        return model.record(key, policy, samples, h)

    return improve_backwards(model, collect, source, config, key, run)


def improve_backwards(
    model: TraceModel, collect: Collect, before: Policy, config: PsdpConfig, key: PRNGKeyArray, run: Run
) -> Policy:
    """The loop both algorithms share. The curve shows `before ∘_h π^b`.

    Steps that share a Q-function are learned twice: what follows within the block is first the policy after it, then the
    one just learned.
    """
    spec, k = model.spec, config.share_steps
    unlearned = Greedy(create_q(Keys(key).create, spec.observation_size, spec.actions, config.fit))
    phase = run.phase("backward", reversed(range(0, spec.horizon, k)), Stack.repeat(unlearned, spec.horizon, k), model)
    for h in phase:
        backward, steps = phase.state, range(h, min(h + k, spec.horizon))
        after = backward[h + k] if h + k < spec.horizon else None
        if after and k > 1:
            backward = backward.with_step(h, after)
        for r in range(1 if k == 1 else 2):
            keys = Keys(key).at(h, r)
            batch = collect_block(collect, keys.collect, steps, backward, config.samples)  # s_h, a_h, r_{h:H}
            states = StateUnits.of(batch.states, spec.ends).centred(batch.states)  # ended episodes decide no unit
            q, report = fit_q(
                keys.fit, states, batch.actions, batch.return_to_go, spec.actions, config.fit,
                warm=after.q if after else None,  # type: ignore[attr-defined]
            )  # fmt: skip
            backward = backward.with_step(h, Greedy(q))
        phase.done(h, backward, evaluate=switch(before, at=h, to=backward), **report._asdict())
    return phase.state


def collect_block(collect: Collect, key: PRNGKeyArray, steps: range, backward: Policy, samples: int) -> Recorded:
    """Samples of all steps of a block, interleaved: held-out samples are the last rows."""
    each = -(-samples // len(steps))
    if len(steps) == 1:
        return collect(key, steps[0], backward, each)
    batches = [collect(fold_in(key, h), h, backward, each) for h in steps]
    return jax.tree.map(lambda *x: jnp.stack(x, axis=1).reshape(-1, *x[0].shape[1:]), *batches)


def check_discrete(spec: Spec) -> None:
    if spec.action_size:
        raise HyrloError("psdp tries every action, so actions must be discrete; for vectors use --improve sac")
