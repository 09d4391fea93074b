"""FAIL's estimator by counting, for discrete actions and observations of a few latent states.

The latent states z of every step are found in the offline states and the online next states together (core/latents.py).
What actions do is then a matter of counting (z, a, z′), and the best policy a small convex problem: flows x(z, a) ≥ 0 with

    Σ_a x(z, a) = d(z),        Σ_{z,a} x(z, a) P(z′|z, a) = q(z′),        π(a|z) = x(z, a) / Σ_a x(z, a),

where d is where the roll-in is and q where the offline states are. All of it is counted and so not exact. Each equation is
weighted by its precision, so that the better known one decides where they contradict each other. Where the roll-in is was
also predicted when the step before was solved: both estimates together are better than either. A policy that gave up
states for every apparent surplus would have lost them all after a hundred steps.

At each step, episodes are collected until every action has been tried in the latent states that matter and the flow is known
well enough, or until there are no more to spend. After the first round, actions that have been tried least come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy.optimize import nnls

from hyrlo.core.access import Recorded, Spec
from hyrlo.core.errors import HyrloError
from hyrlo.core.keys import Keys
from hyrlo.core.latents import Latents, discover
from hyrlo.core.policies import LatentTable, Policy, Stack, switch
from hyrlo.core.ranges import Count, Positive
from hyrlo.data.states import ObservationDataset
from hyrlo.forward.fail import Estimator, ForwardConfig

MATTERS = 0.02
"""Latent states with a smaller share of the episodes that go on, both online and offline, are not waited for."""
CONTRADICTION = 4.0
"""Standard deviations between two estimates of a share that contradict each other."""
LOOK_AGAIN = 5
"""Latent states are discovered anew once there are this many times as many online states."""
EVEN = 1e-3
"""Weight of an even choice among actions that do the same, relative to what is known."""
Counts = Int[np.ndarray, "latents actions following"]
"""How often each latent state and action led to each next latent state."""


@dataclass(frozen=True)
class LatentConfig(ForwardConfig):
    """Forward pass by counting what actions do to latent states."""

    samples: Count = 100
    """Online episodes of the first rounds of a step; later ones have up to a quarter of what is there."""
    offline_samples: Count | None = None
    """Offline states used per step (default: all)."""
    most: Count = 2000
    """Online episodes of a step from which on no new round begins."""
    tries: Count = 3
    """How often every action is tried in a latent state that matters."""
    tolerance: Positive = 0.06
    """Error of the flow, in total variation, from which on a step is known well enough."""
    latents: Count = 256
    """Most latent states of a step."""

    def closely(self) -> LatentConfig:
        return replace(self, tolerance=0.4 * self.tolerance, most=5 * self.most)

    def estimator(self, spec: Spec, data: ObservationDataset, key: PRNGKeyArray) -> LatentEstimator:
        return LatentEstimator(spec, data, self, key)


class Counted(NamedTuple):
    """What was seen at a step: latent state, action, reward, next latent state."""

    latent: Int[np.ndarray, " n"]
    action: Int[np.ndarray, " n"]
    reward: Float[np.ndarray, " n"]
    following: Int[np.ndarray, " n"]

    def table(self, latents: int, actions: int, following: int) -> Counts:
        counts = np.zeros((latents, actions, following), int)
        np.add.at(counts, (self.latent, self.action, self.following), 1)
        return counts

    def and_also(self, other: Counted) -> Counted:
        return Counted(*(np.concatenate(both) for both in zip(self, other, strict=True)))


def outcomes(counts: Counts) -> Float[np.ndarray, "latents actions following"]:
    """P(z′ | z, a); even where nothing was tried."""
    tries = counts.sum(axis=2, keepdims=True)
    return np.where(tries > 0, counts / np.maximum(tries, 1), 1 / counts.shape[2])


class Share(NamedTuple):
    """An estimate of the share of each latent state, and its variance."""

    mean: Float[np.ndarray, " latents"]
    noise: Float[np.ndarray, " latents"]

    @classmethod
    def counted(cls, counts: Int[np.ndarray, " latents"]) -> Share:
        n = counts.sum()
        mean = counts / n
        return cls(mean, (mean * (1 - mean) + 0.5 / n) / n)

    def and_also(self, other: Share) -> Share:
        """Both estimates together, unless they contradict each other: then this one alone."""
        if np.any((self.mean - other.mean) ** 2 > CONTRADICTION**2 * (self.noise + other.noise)):
            return self
        noise = 1 / (1 / self.noise + 1 / other.noise)
        mean = noise * (self.mean / self.noise + other.mean / other.noise)
        return Share(mean / mean.sum(), noise)

    def error(self) -> float:
        """Its expected distance from the truth, in total variation."""
        return 0.5 * float(np.sum(np.sqrt(2 / np.pi * self.noise)))


class Match(NamedTuple):
    """The flow of one step."""

    policy: Float[np.ndarray, "latents actions"]
    reached: Share
    """Where the policy leads, as far as known."""


def match(counts: Counts, mass: Share, aim: Share) -> Match:
    """The likeliest flow from the roll-in to the offline states, given how well each is known."""
    latents, actions, following = counts.shape
    tries = counts.sum(axis=2)
    z, a = np.nonzero(tries)
    moves = counts[z, a] / tries[z, a, None]  # P(z′ | z, a) of what was tried
    even = mass.mean[z] / np.sum(tries > 0, axis=1)[z]
    smooth = (counts[z, a] + 0.5) / (tries[z, a, None] + 0.5 * following)
    noise = smooth * (1 - smooth) / tries[z, a, None]
    member = (np.arange(latents)[:, None] == z) / np.sqrt(mass.noise)[:, None]
    flow = even
    for _ in range(3):  # how well the outcome of a flow is known depends on the flow
        weight = 1 / np.sqrt(aim.noise + flow**2 @ noise)
        ridge = EVEN * weight.max()
        system = np.concatenate([moves.T * weight[:, None], member, ridge * np.eye(len(z))])
        flow = nnls(system, np.concatenate([aim.mean * weight, mass.mean / np.sqrt(mass.noise), ridge * even]))[0]
    policy = np.zeros((latents, actions))
    policy[z, a] = flow
    total = policy.sum(axis=1, keepdims=True)
    policy = np.where(total > 1e-9, policy / np.maximum(total, 1e-9), 1 / actions)
    leads = np.einsum("za,zaf->zf", policy, outcomes(counts))
    return Match(policy, Share(mass.mean @ leads, flow**2 @ noise + mass.noise @ leads**2))


class LatentState(NamedTuple):
    """The forward policy so far, and what is known of the step to come."""

    policy: Stack
    reached: Float[Array, "2 latents"]
    """Where the policy should be at that step: mean and variance of each share."""


class LatentEstimator(Estimator):
    """Finds latent states, counts what actions do to them, and solves for the flow."""

    def __init__(self, spec: Spec, data: ObservationDataset, config: LatentConfig, key: PRNGKeyArray):
        if spec.action_size:
            raise HyrloError("this estimator is for discrete actions; use --forward model (VectorModelConfig)")
        self.spec, self.data, self.config, self.samples = spec, data, config, config.samples
        self.seed = int(jax.random.bits(Keys(key).latents)) >> 1
        self.counted: dict[int, Counted] = {}
        """By step."""
        self.encoders: list[Latents] = []
        """Of every step so far and of the one to come."""

    def start(self) -> LatentState:
        encoder = jnp.zeros((self.spec.observation_size + 1, self.config.latents))
        table = jnp.full((self.config.latents, self.spec.actions), 1 / self.spec.actions)
        policy = Stack.repeat(LatentTable(encoder, table), self.spec.horizon)
        return LatentState(policy, jnp.zeros((2, self.config.latents)))

    def forward(self, state: LatentState) -> Stack:
        return state.policy

    def begin(self, state: LatentState, h: int) -> LatentState:
        self.states, self.following = np.zeros((2, 0, self.spec.observation_size), np.float32)
        self.actions, self.rewards, self.looked_at = np.zeros(0, np.int32), np.zeros(0, np.float32), 0
        self.before = None if h == 0 else Share(*np.asarray(state.reached, float)[:, : self.encoders[h].count])
        return state

    def wants(self, state: LatentState, h: int, r: int) -> int:
        if r == 0:
            return self.samples
        enough = not self.missing(h).any() and self.match.reached.error() <= self.config.tolerance
        if enough or len(self.states) >= self.config.most:
            return 0
        return self.samples * 2 ** max(0, int(np.log2(len(self.states) / (4 * self.samples))))  # few sizes to compile

    def missing(self, h: int) -> Int[np.ndarray, "latents actions"]:
        """How often actions are still to be tried in the latent states that matter, online or offline."""
        shares = [self.going(h, states) for states in (self.states, self.data.at(h))]
        tries, matters = self.counts.sum(axis=2), np.max(shares, axis=0) >= MATTERS
        return np.maximum(self.config.tries - tries, 0) * matters[:, None]

    def going(self, h: int, states: Float[np.ndarray, "n obs"]) -> Float[np.ndarray, " latents"]:
        """The share of each latent state among the states of episodes that have not ended."""
        going = states[states[:, -1] < 0.5] if self.spec.ends else states
        latents = self.encoders[h]
        return np.bincount(latents.label(going), minlength=latents.count) / max(len(going), 1)

    def offline(self, h: int) -> Share:
        """The share of the offline states of step `h` in each latent state."""
        latents = self.encoders[h]
        return Share.counted(np.bincount(latents.label(self.data.at(h)), minlength=latents.count))

    def exploring(self, state: LatentState, h: int, r: int) -> Policy:
        """Uniform actions first; then those that are missing, or else those the flow's error is due to."""
        if r == 0:
            return switch(state.policy, at=h, to=self.spec.uniform())
        missing = self.missing(h)
        due = np.sqrt(1 - np.sum(outcomes(self.counts) ** 2, axis=2)) * self.match.policy + 1e-9
        wanted = np.where(missing.any(axis=1, keepdims=True), missing, due)
        wanted = 0.95 * wanted / wanted.sum(axis=1, keepdims=True) + 0.05 / self.spec.actions
        return switch(state.policy, at=h, to=Stack.repeat(self.table(h, wanted), self.spec.horizon))

    def table(self, h: int, probabilities: Float[np.ndarray, "latents actions"]) -> LatentTable:
        rows = self.config.latents - len(probabilities)
        padded = np.pad(probabilities, ((0, rows), (0, 0)), constant_values=1 / self.spec.actions)
        return LatentTable(jnp.asarray(self.encoders[h].padded(self.config.latents)), jnp.asarray(padded, jnp.float32))

    def update(
        self, key: PRNGKeyArray, state: LatentState, online: Recorded, h: int
    ) -> tuple[LatentState, dict[str, float]]:
        self.states = np.concatenate([self.states, online.states])
        self.following = np.concatenate([self.following, online.next_states])
        if h == 0 and not self.encoders:
            self.encoders.append(self.discover(0, self.states))
        if len(self.states) >= LOOK_AGAIN * self.looked_at:  # online states may be of kinds that the data lack
            self.encoders[h + 1 :] = [self.discover(h + 1, self.following)]
            self.looked_at = len(self.states)
        latents, following = self.encoders[h : h + 2]
        self.actions, self.rewards = np.append(self.actions, online.actions), np.append(self.rewards, online.rewards)
        here, there = latents.label(self.states), following.label(self.following)
        self.counted[h] = Counted(here, self.actions, self.rewards, there)
        self.counts = self.counted[h].table(latents.count, self.spec.actions, following.count)
        mass = Share.counted(self.counts.sum(axis=(1, 2)))
        mass = mass if self.before is None else mass.and_also(self.before)
        aim = self.offline(h + 1)
        self.match = match(self.counts, mass, aim)
        policy = state.policy.with_step(h, self.table(h, self.match.policy))
        reached = self.match.reached
        distance = 0.5 * float(np.abs(reached.mean - aim.mean).sum())
        metrics = {"tv": distance, "tv_error": reached.error(), "latents": float(following.count)}
        rows = np.pad(np.stack(reached), ((0, 0), (0, self.config.latents - following.count)))
        return LatentState(policy, jnp.asarray(rows, jnp.float32)), metrics

    def discover(self, h: int, online: Float[np.ndarray, "n obs"]) -> Latents:
        """The latent states of step `h`: of offline and online states together."""
        return discover((self.data.at(h), online), self.config.latents, self.seed)

    def notes(self) -> Iterator[str]:
        full = [h for h, latents in enumerate(self.encoders) if latents.count == self.config.latents]
        if full:
            yield (
                f"step {full[0]} has as many latent states as there is room for ({self.config.latents}), so that some may be "
                "merged; give a larger --forward.latent.latents, or another --forward"
            )

    def kept(self, h: int) -> tuple[Array, ...]:
        encoders = [self.encoders[h + 1].encoder] if h else [x.encoder for x in self.encoders]
        return tuple(jnp.asarray(x) for x in (*self.counted[h], *encoders))

    def restore(self, kept: Iterator[tuple[Array, ...]]) -> None:
        for h, rows in enumerate(kept):
            arrays = [np.asarray(x) for x in rows]
            self.counted[h] = Counted(*arrays[:4])
            self.encoders += [Latents(x) for x in arrays[4:]]
