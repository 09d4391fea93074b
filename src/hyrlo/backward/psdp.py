"""PSDP, with a reset model (Algorithm 1) and with a trace model and a roll-in policy (Algorithm 2).

For h = H−1 … 0: from states of step h, act uniformly, follow π_{h+1:H} to the end, regress the return on (s_h, a_h),

    f_h = argmin_f Σ_n ( f(s_h, a_h) − Σ_{τ ≥ h} r_τ )²,        π_h(s) = argmax_a f_h(s, a).

The two algorithms differ in one line: where the states of step h come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax.random import fold_in
from jaxtyping import PRNGKeyArray

from hyrlo.core.access import Recorded, Spec, TraceModel, require_reset
from hyrlo.core.algorithm import Run
from hyrlo.core.errors import HyrloError, check_positive
from hyrlo.core.policies import Greedy, Policy, Stack, switch
from hyrlo.core.regression import FitConfig, create_q, fit_q
from hyrlo.data.states import ObservationDataset


@dataclass(frozen=True)
class PsdpConfig:
    """The backward pass: improve from the last step to the first."""

    offline_samples: int = 2000
    """Offline states used per step (all there are, if fewer); with a reset model only."""
    samples: int = 5000
    """Online episodes per step (per k steps that share a Q-function, twice)."""
    share_steps: int = 1
    """k: so many consecutive steps share a Q-function, learned from all of them: for long horizons."""
    fit: FitConfig = field(default_factory=FitConfig)

    def __post_init__(self) -> None:
        check_positive(self, "samples", "offline_samples", "share_steps")


PAPER_FIT = FitConfig(solver="sgd", updates=1500, learning_rate=1e-3, batch=128)
PRESETS = {
    "paper": PsdpConfig(samples=5000, fit=PAPER_FIT),
    "fast": PsdpConfig(samples=1000),
    "lean": PsdpConfig(samples=800),
}


def psdp(model: TraceModel, source: ObservationDataset, config: PsdpConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """Algorithm 1: states of step h are offline states, to which the reset model is reset."""
    reset_model = require_reset(model, "psdp")
    uniform = model.spec.uniform()

    def collect(key: PRNGKeyArray, h: int, backward: Policy, samples: int) -> Recorded:
        pick_key, rollout_key = jax.random.split(key)
        states = jax.random.choice(pick_key, jnp.asarray(source.at(h)), (samples,))
        return reset_model.rollout_from(rollout_key, states, switch(uniform, at=h + 1, to=backward), at=h)

    return improve_backwards(model, collect, None, config, key, run)


def psdp_trace(model: TraceModel, source: Policy, config: PsdpConfig, key: PRNGKeyArray, run: Run) -> Policy:
    """Algorithm 2: states of step h are those the roll-in policy `source` reaches."""
    uniform = model.spec.uniform()

    def collect(key: PRNGKeyArray, h: int, backward: Policy, samples: int) -> Recorded:
        policy = switch(source, at=h, to=switch(uniform, at=h + 1, to=backward))  # π^f ∘_h unif ∘_{h+1} π^b
        return model.record(key, policy, samples, h)

    return improve_backwards(model, collect, source, config, key, run)


def improve_backwards(
    model: TraceModel,
    collect: Callable[[PRNGKeyArray, int, Policy, int], Recorded],
    roll_in: Policy | None,
    config: PsdpConfig,
    key: PRNGKeyArray,
    run: Run,
) -> Policy:
    """The loop both algorithms share. The curve shows `π^f ∘_h π^b`, where there is a roll-in; else `unif ∘_h π^b`."""
    spec = model.spec
    check_discrete(spec)
    k = config.share_steps

    def collect_at(key: PRNGKeyArray, steps: range, backward: Policy) -> Recorded:
        each = -(-config.samples // len(steps))
        if len(steps) == 1:
            return collect(key, steps[0], backward, each)
        return one_after_another(collect(fold_in(key, h), h, backward, each) for h in steps)

    unlearned = Greedy(create_q(key, spec.observation_size, spec.actions, config.fit))
    blocks = reversed(range(0, spec.horizon, k))
    phase = run.phase("backward", blocks, Stack.repeat(unlearned, spec.horizon, k), model)
    for h in phase:
        backward, steps = phase.state, range(h, min(h + k, spec.horizon))
        after = backward[h + k] if h + k < spec.horizon else None
        if after and k > 1:
            backward = backward.with_step(h, after)
        for r in range(1 if k == 1 else 2):  # what follows within k steps: first as after them, then as just learned
            collect_key, fit_key = jax.random.split(fold_in(fold_in(key, h), r) if k > 1 else fold_in(key, h))
            batch = collect_at(collect_key, steps, backward)  # s_h, a_h, r_{h:H}
            warm = after.q if after else None  # type: ignore[attr-defined]
            q, report = fit_q(
                fit_key, batch.states, batch.actions, batch.return_to_go, spec.actions, config.fit, warm=warm
            )
            backward = backward.with_step(h, Greedy(q))
        before = spec.uniform() if roll_in is None else roll_in
        phase.done(h, backward, evaluate=switch(before, at=h, to=backward), **report._asdict())
    return phase.state


def check_discrete(spec: Spec) -> None:
    if spec.action_size:
        raise HyrloError("psdp tries every action, so actions must be discrete; for vectors use --improve sac")


def one_after_another(batches: Iterable[Recorded]) -> Recorded:
    """Roll-outs of several steps as one, well mixed: held-out samples are the last rows."""
    return jax.tree.map(lambda *x: jnp.stack(x, axis=1).reshape(-1, *x[0].shape[1:]), *batches)
