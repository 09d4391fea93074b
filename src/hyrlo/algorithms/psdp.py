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

from hyrlo.access import Rollout, TraceModel, require_reset
from hyrlo.algorithms.base import Run
from hyrlo.algorithms.fit import FitConfig, create_q, fit_q
from hyrlo.data import ObservationDataset
from hyrlo.errors import HyrloError, check_positive
from hyrlo.policies import Greedy, Policy, Stack, switch


@dataclass(frozen=True)
class PsdpConfig:
    """The backward pass: improve from the last step to the first."""

    offline_samples: int = 2000
    """Offline states used per step (all there are, if fewer); with a reset model only."""
    samples: int = 5000
    """Online episodes per step."""
    fit: FitConfig = field(default_factory=FitConfig)

    def __post_init__(self) -> None:
        check_positive(self, "samples", "offline_samples")


PAPER_FIT = FitConfig(solver="sgd", updates=1500, learning_rate=1e-3, batch=128)
PRESETS = {
    "paper": PsdpConfig(samples=5000, fit=PAPER_FIT),
    "fast": PsdpConfig(samples=1000),
    "lean": PsdpConfig(samples=600),
}


def psdp(model: TraceModel, source: ObservationDataset, config: PsdpConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """Algorithm 1: states of step h are offline states, to which the reset model is reset."""
    reset_model = require_reset(model, "psdp")
    uniform = model.spec.uniform()

    def collect(key: PRNGKeyArray, h: int, backward: Policy) -> Rollout:
        pick_key, rollout_key = jax.random.split(key)
        states = jax.random.choice(pick_key, jnp.asarray(source.at(h)), (config.samples,))
        return reset_model.rollout_from(rollout_key, states, switch(uniform, at=h + 1, to=backward), at=h)

    return improve_backwards(model, collect, None, config, key, run)


def psdp_trace(model: TraceModel, source: Policy, config: PsdpConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """Algorithm 2: states of step h are those the roll-in policy `source` reaches."""
    uniform = model.spec.uniform()

    def collect(key: PRNGKeyArray, h: int, backward: Policy) -> Rollout:
        policy = switch(source, at=h, to=switch(uniform, at=h + 1, to=backward))  # π^f ∘_h unif ∘_{h+1} π^b
        return model.rollout(key, policy, config.samples, record=h)

    return improve_backwards(model, collect, source, config, key, run)


def improve_backwards(
    model: TraceModel,
    collect: Callable[[PRNGKeyArray, int, Policy], Rollout],
    roll_in: Policy | None,
    config: PsdpConfig,
    key: PRNGKeyArray,
    run: Run,
) -> Policy:
    """The loop both algorithms share. The curve shows `π^f ∘_h π^b`, where there is a roll-in; else `unif ∘_h π^b`."""
    spec = model.spec
    if spec.action_size:
        raise HyrloError("psdp tries every action, so actions must be discrete; for vectors use --improve sac")
    unlearned = create_q(key, spec.observation_size, spec.actions, config.fit)
    phase = run.phase("backward", reversed(range(spec.horizon)), Stack.repeat(Greedy(unlearned), spec.horizon), model)
    for h in phase:
        collect_key, fit_key = jax.random.split(fold_in(key, h))
        backward = phase.state
        batch = collect(collect_key, h, backward)  # s_h, a_h, r_{h:H}
        assert batch.states is not None
        assert batch.actions is not None
        assert batch.return_to_go is not None
        after = backward[h + 1].q if h + 1 < spec.horizon else None  # type: ignore[attr-defined]
        q, report = fit_q(
            fit_key, batch.states, batch.actions, batch.return_to_go, spec.actions, config.fit, warm=after
        )
        backward = backward.with_step(h, Greedy(q))
        before = spec.uniform() if roll_in is None else roll_in
        phase.done(h, backward, evaluate=switch(before, at=h, to=backward), **report._asdict())
    return phase.state
