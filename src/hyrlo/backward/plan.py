"""Plan in what the forward pass has counted, then check.

The forward pass has tried every action in every latent state z of every step. Their values follow by dynamic programming,
without a further episode:

    Q_h(z, a) = r̂(z, a) + Σ_z′ P̂(z′|z, a) max_a′ Q_{h+1}(z′, a′)

There is no shrinkage: over a hundred steps, the least of it would make a large late reward worth less than a small early
one. An action that was never tried is never chosen, and a latent state in which none was tried is worth the least.

A few episodes check the plan. If they earn less than it promises, something was counted too rarely, or a latent state is not
what it seems. The check's own episodes are counted, too, and more are spent at the step where most was lost: the plan up to
it, then any action. This repeats until a check holds or the rounds are used up. If the best plan then turns
out no better than the roll-in, PSDP improves the roll-in instead.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.backward import psdp
from hyrlo.core.access import Recorded, TraceModel
from hyrlo.core.algorithm import Run
from hyrlo.core.keys import Keys
from hyrlo.core.networks import LatentQ
from hyrlo.core.policies import Greedy, Policy, Stack, switch
from hyrlo.core.ranges import Count, Options, Positive
from hyrlo.forward.latent import Counted, LatentEstimator, outcomes


@dataclass(frozen=True)
class PlanConfig(Options):
    """Backward pass by planning with what the forward pass has counted."""

    episodes: Count = 50
    """Episodes of a check."""
    samples: Count = 100
    """Episodes at the step where most was lost, after a check that fails."""
    rounds: Count = 20
    """Most checks."""
    slack: Positive = 0.05
    """Share of the promised return that may be missing."""


class Plan(NamedTuple):
    """Values of every step."""

    policy: Stack
    values: list[Float[np.ndarray, " latents"]]
    """Of steps 0 … H."""


class Checked(NamedTuple):
    """A check of a plan."""

    earned: float
    promised: float
    holds: int
    worst: int
    """The step at which most was lost."""


class Planned(NamedTuple):
    """The best plan so far and what its check earned; the rest is of the last check."""

    policy: Stack
    earned: Float[Array, ""]
    holds: Int[Array, ""]
    worst: Int[Array, ""]
    missing: Float[Array, ""]
    """How much less it earned than was promised."""

    @classmethod
    def before(cls, policy: Stack) -> Planned:
        """Any check is better."""
        return cls(policy, jnp.asarray(-jnp.inf), jnp.zeros((), int), jnp.zeros((), int), jnp.zeros(()))

    def after(self, policy: Stack, checked: Checked) -> Planned:
        earned, promised, holds, worst = (jnp.asarray(x) for x in checked)
        best = self if self.earned >= earned and not checked.holds else self._replace(policy=policy, earned=earned)
        return best._replace(holds=holds, worst=worst, missing=promised - earned)


def plan(counted: LatentEstimator) -> Plan:
    """Dynamic programming in the counted tables."""
    spec, most = counted.spec, counted.config.latents
    values = [np.zeros(counted.encoders[-1].count)]
    policies = []
    for h in reversed(range(spec.horizon)):
        seen, latents = counted.counted[h], counted.encoders[h]
        counts = seen.table(latents.count, spec.actions, len(values[0]))
        tries, rewards = counts.sum(axis=2), np.zeros(counts.shape[:2])
        np.add.at(rewards, (seen.latent, seen.action), seen.reward)
        q = rewards / np.maximum(tries, 1) + outcomes(counts) @ values[0]
        tried = tries > 0
        least = q[tried].min() - (np.ptp(q[tried]) or 1.0)  # less than all that was tried, in units of the rewards
        best = np.where(tried, q, -np.inf).max(axis=1)
        values.insert(0, np.where(tried.any(axis=1), best, best[tried.any(axis=1)].min()))
        head = np.pad(np.where(tried, q, least), ((0, most - latents.count), (0, 0)))
        encoder = jnp.asarray(latents.padded(most))
        policies.append(Greedy(LatentQ(encoder, jnp.asarray(head, jnp.float32), jnp.zeros(()))))
    return Plan(Stack(jax.tree.map(lambda *steps: jnp.stack(steps), *reversed(policies))), values)


class SeenRows(NamedTuple):
    """What was counted besides the forward pass, of any steps."""

    step: Int[np.ndarray, " n"]
    counted: Counted

    def add_to(self, estimator: LatentEstimator) -> None:
        for h in np.unique(self.step):
            here = Counted(*(x[self.step == h] for x in self.counted))
            estimator.counted[int(h)] = estimator.counted[int(h)].and_also(here)


def rows_of(estimator: LatentEstimator, batch: Recorded, steps: Sequence[int]) -> SeenRows:
    """Recorded steps, with their latent states."""
    found = []
    for h, states, actions, rewards, following in zip(
        steps, *(np.asarray(x) for x in (batch.states, batch.actions, batch.rewards, batch.next_states)), strict=True
    ):
        latent, after = estimator.encoders[h].label(states), estimator.encoders[h + 1].label(following)
        found.append(SeenRows(np.full(len(actions), h), Counted(latent, actions, rewards, after)))
    return together(found)


def together(rows: Sequence[SeenRows]) -> SeenRows:
    return SeenRows(
        np.concatenate([r.step for r in rows]), functools.reduce(Counted.and_also, (r.counted for r in rows))
    )


def losses(values: list[Float[np.ndarray, " latents"]], rows: SeenRows) -> Float[np.ndarray, " horizon"]:
    """By step: how much less followed than the plan promised, on average."""
    lost = np.zeros(len(values) - 1)
    for h in range(len(lost)):
        latent, _, reward, following = (x[rows.step == h] for x in rows.counted)
        lost[h] = np.mean(values[h][latent] - reward - values[h + 1][following])
    return lost


def plan_and_check(
    model: TraceModel, roll_in: Policy, estimator: LatentEstimator, config: PlanConfig, key: PRNGKeyArray, run: Run
) -> Policy:
    """Plan, check, and count more where the check fails; if no plan is better than the roll-in, PSDP from the roll-in."""
    horizon, keys = model.spec.horizon, Keys(key)
    phase = run.phase("plan", range(config.rounds), Planned.before(plan(estimator).policy), model)
    for step, *counted in phase.kept():
        SeenRows(np.asarray(step), Counted(*(np.asarray(x) for x in counted))).add_to(estimator)
    for r in phase:
        if phase.state.holds:
            break
        here, (policy, values) = keys.at(r), plan(estimator)
        check = model.record(here.check, policy, config.episodes, tuple(range(horizon)))
        rows = rows_of(estimator, check, range(horizon))
        checked = compare(check, values, rows, config)
        if not checked.holds:  # the plan up to the step where most was lost, then any action
            lost = checked.worst
            then_any = switch(policy, at=lost, to=model.spec.uniform())
            more = model.record(here.more, then_any, config.samples, (lost,), stop=lost + 1)
            rows = together([rows, rows_of(estimator, more, [lost])])
        rows.add_to(estimator)
        phase.keep(tuple(jnp.asarray(x) for x in (rows.step, *rows.counted)))
        best = phase.state.after(policy, checked)
        phase.done(0, best, best.policy, **checked._asdict())
    return best_of(model, roll_in, phase.state, config, keys, run)


def compare(
    check: Recorded, values: list[Float[np.ndarray, " latents"]], rows: SeenRows, config: PlanConfig
) -> Checked:
    """What the episodes of a check earned and what the plan promised them."""
    earned, promised = float(check.returns.mean()), float(values[0][rows.counted.latent[rows.step == 0]].mean())
    noise = 2 * float(check.returns.std()) / config.episodes**0.5
    holds = earned >= promised - noise - config.slack * abs(promised)
    return Checked(earned, promised, int(holds), int(np.argmax(losses(values, rows))))


def best_of(model: TraceModel, roll_in: Policy, best: Planned, config: PlanConfig, keys: Keys, run: Run) -> Policy:
    """The plan, if it is better than the roll-in; else PSDP from the roll-in."""
    if not best.holds:
        run.warn(
            f"the plan earns {float(best.missing):.3g} less than it promises after {config.rounds} checks, and most is "
            f"lost at step {int(best.worst)}; see `hyrlo diagnose`, or try --improve psdp",
            phase="plan", step=int(best.worst), missing=float(best.missing),
        )  # fmt: skip
    plans, roll_ins = (
        np.asarray(model.rollout(each, policy, config.samples).returns)
        for each, policy in ((keys.plan, best.policy), (keys.roll_in, roll_in))
    )
    noise = 2 * np.sqrt((plans.var() + roll_ins.var()) / config.samples)
    gain = plans.mean() - roll_ins.mean()
    if gain >= -noise if best.holds else gain > noise:
        return best.policy
    run.choose("backward", "psdp", f"the plan earns {plans.mean():.3g}, the roll-in {roll_ins.mean():.3g}")
    improved = psdp.psdp_trace(model, roll_in, psdp.TRACE_PRESETS["fast"], keys.psdp, run)
    again = model.rollout(keys.psdp_check, improved, config.samples).returns.mean()
    found = ((float(again), improved), (float(plans.mean()), best.policy), (float(roll_ins.mean()), roll_in))
    return max(found, key=lambda pair: pair[0])[1]
