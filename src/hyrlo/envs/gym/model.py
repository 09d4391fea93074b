"""Access models over a vector of Gymnasium environments: batches of episodes in lock-step, ended ones absorbed."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyrlo.core.access import Ledger, Recorded, Rollout, Spec, Steps, checked_steps
from hyrlo.core.policies import Actions, Policy, Step
from hyrlo.envs.gym.reset import known_set_state
from hyrlo.envs.gym.vector import Vector
from hyrlo.envs.gym.wrappers import Absorbing, SetState, Start


class Envs(Protocol):
    """What the models need of a world: its sizes, one environment to look at, and the vector to play."""

    name: str
    env: Absorbing
    says_success: bool
    """Whether any episode so far said something about success."""

    @property
    def spec(self) -> Spec: ...

    def vector(self) -> Vector: ...


class _Frame:
    """All of a policy but its arrays. Equal ones share compiled code; the same one is recognised at no cost."""

    def __init__(self, *parts: Any):
        self.parts, self.hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Frame) and self.parts == other.parts)


class _Actor:
    """A policy that acts step after step: taken apart once, which `eqx.filter_jit` would do at every step."""

    def __init__(self, policy: Policy, key: PRNGKeyArray):
        leaves, structure = jax.tree.flatten(policy)
        self.arrays = [x if eqx.is_array(x) else None for x in leaves]
        self.frame = _Frame(structure, *(None if eqx.is_array(x) else x for x in leaves))
        self.key = key

    def __call__(self, observations: Float[np.ndarray, "n obs"], h: int) -> np.ndarray:
        return np.asarray(_act(self.frame, self.arrays, self.key, observations, np.int32(h)))


@functools.partial(jax.jit, static_argnums=0)
def _act(
    frame: _Frame, arrays: list[Array | None], key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step
) -> Actions:
    structure, *others = frame.parts
    policy = structure.unflatten(a if o is None else o for a, o in zip(arrays, others, strict=True))
    return policy.act(jax.random.fold_in(key, h), observations, h)


class _Tape:
    """What a roll-out keeps: whole-episode sums, and the wanted steps of every episode."""

    def __init__(self, wanted: Int[np.ndarray, "k n"], spec: Spec):
        shape, observation = wanted.shape, (*wanted.shape, spec.observation_size)
        self.wanted = wanted
        self.returns, self.success = np.zeros(shape[1]), np.zeros(shape[1], bool)
        self.states = np.zeros(observation, np.float32)
        self.next_states = np.zeros(observation, np.float32)
        self.actions = (
            np.zeros((*shape, spec.action_size), np.float32) if spec.action_size else np.zeros(shape, np.int32)
        )
        self.earned, self.rewards, self.ended = np.zeros(shape), np.zeros(shape), np.zeros(shape, bool)

    def rollout(self, says_success: bool) -> Rollout:
        return Rollout(jnp.asarray(self.returns, jnp.float32), jnp.asarray(self.success) if says_success else None)

    def recorded(self, says_success: bool, only_one: bool) -> Recorded:
        to_go, rewards = (x.astype(np.float32) for x in (self.returns - self.earned, self.rewards))
        steps = (self.states, self.actions, rewards, to_go, self.next_states, self.ended)
        return Recorded(*self.rollout(says_success), *(jnp.asarray(x[0] if only_one else x) for x in steps))


@dataclass
class GymTraceModel:
    """Trace access to a Gymnasium environment.

    The ledger counts real steps, none after an episode's end. It counts them as they are taken: a roll-out that fails has
    cost what was played of it, the step that failed included.
    """

    world: Envs
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def spec(self) -> Spec:
        return self.world.spec

    def rollout(self, key: PRNGKeyArray, policy: Policy, episodes: int, *, stop: int | None = None) -> Rollout:
        tape = _Tape(np.zeros((0, episodes), int), self.spec)
        self._play(key, policy, tape, self.spec.horizon if stop is None else stop)
        return tape.rollout(self.world.says_success)

    def record(
        self, key: PRNGKeyArray, policy: Policy, episodes: int, steps: Steps, *, stop: int | None = None
    ) -> Recorded:
        stop = self.spec.horizon if stop is None else stop
        wanted = checked_steps(steps, episodes, stop)
        tape = _Tape(np.broadcast_to(wanted.T, (episodes, len(wanted))).T, self.spec)
        self._play(key, policy, tape, stop)
        return tape.recorded(self.world.says_success, only_one=not isinstance(steps, tuple | np.ndarray))

    def evaluation(self) -> GymTraceModel:
        return GymTraceModel(self.world)

    def _play(self, key: PRNGKeyArray, policy: Policy, tape: _Tape, stop: int, start: Start | None = None) -> None:
        """Fill the tape, as many episodes at a time as there are environments."""
        start_key, act_key = jax.random.split(key)
        n, vector = tape.wanted.shape[1], self.world.vector()
        seeds = episode_seeds(start_key, n)
        for number, begin in enumerate(range(0, n, vector.count)):
            rows = slice(begin, min(begin + vector.count, n))
            here = start or Start(0)
            observations = None if here.observations is None else here.observations[rows]
            here = here._replace(rows=rows.stop - begin, observations=observations)
            with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such
                self._play_batch(jax.random.fold_in(act_key, number), policy, tape, rows, seeds[rows], stop, here)

    def _play_batch(
        self,
        key: PRNGKeyArray,
        policy: Policy,
        tape: _Tape,
        rows: slice,
        seeds: Sequence[int],
        stop: int,
        start: Start,
    ) -> None:
        """Play the episodes `rows` of the tape, one in each environment."""
        vector, m = self.world.vector(), start.rows
        act = _Actor(policy.rows(rows.start, vector.count), key)
        observations, news = vector.reset(seeds, start)
        self.ledger.book(m, 0)
        over = news.ended.copy()
        self._note_success(tape, rows, news.success)
        returns = np.zeros(vector.count)
        wanted = tape.wanted[:, rows]
        kept = set(np.unique(wanted).tolist())
        for h in range(start.at, stop):
            if over.all() and h not in kept:
                observations = np.broadcast_to(self.world.env.absorbed, observations.shape)
                continue
            actions = act(observations, h)
            which, columns = np.nonzero(wanted == h)
            at = (which, rows.start + columns)
            tape.states[at], tape.actions[at] = observations[columns], actions[columns]
            tape.earned[at] = returns[columns]
            self.ledger.book(0, int((~over).sum()))
            observations, rewards, news = vector.step(actions, h)
            over |= news.ended
            self._note_success(tape, rows, news.success)
            returns += rewards
            tape.rewards[at], tape.ended[at], tape.next_states[at] = (
                rewards[columns],
                over[columns],
                observations[columns],
            )
        tape.returns[rows] = returns[:m]

    def _note_success(self, tape: _Tape, rows: slice, success: np.ndarray | None) -> None:
        if success is not None:
            self.world.says_success = True
            tape.success[rows] |= success[: rows.stop - rows.start]


@dataclass
class GymResetModel(GymTraceModel):
    """Reset access: `set_state(env, observation)` puts an environment into the state of an observation.

    It is known for classic control and for MuJoCo environments that observe all positions and velocities. An observation
    with which an episode ends looks like any other; where `set_state` returns True it is known for one.
    """

    set_state: SetState | None = None

    def __post_init__(self) -> None:
        self.set_state = self.set_state or known_set_state(self.world.name, self.world.env)

    def rollout_from(
        self, key: PRNGKeyArray, observations: Float[Array, "n obs"], policy: Policy, *, at: int
    ) -> Recorded:
        states = np.asarray(observations, np.float32)
        tape = _Tape(np.full((1, len(states)), at), self.spec)
        start = Start(0, states, at, CloudpickleWrapper(self.set_state))  # type: ignore[arg-type]
        self._play(key, policy, tape, self.spec.horizon, start)
        return tape.recorded(self.world.says_success, only_one=True)


def episode_seeds(key: PRNGKeyArray, n: int) -> list[int]:
    """Seeds of n episodes; the first ones do not depend on n."""
    words = np.random.SeedSequence(np.asarray(jax.random.key_data(key)).ravel().tolist()).generate_state(n)
    return (words >> 1).tolist()  # 31 bits: some simulators take no more
