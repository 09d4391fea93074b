"""A small lock, policies that know its combination, and ways to look through its observations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Int

from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.core.policies import Policy
from hyrlo.envs.lock import Lock, optimal_actions

H = 5
N = 2000
LOCK = Lock.create(H)
KEY = jax.random.key(7)


class Shifted(Policy):
    """The correct action plus `by`: optimal for 0, always wrong for 1."""

    lock: Lock
    by: Int[Array, ""]

    def act(self, key, observations, h):
        right = optimal_actions(self.lock, self.lock.decode(observations), h)
        return (right + self.by) % self.lock.config.actions


class Always(Policy):
    """One action, whatever it sees."""

    action: Int[Array, ""]

    def act(self, key, observations, h):
        return jnp.full(len(observations), self.action)


def shifted(by: int) -> Shifted:
    return Shifted(LOCK, jnp.asarray(by))


def always(action: int) -> Always:
    return Always(jnp.asarray(action))


OPTIMAL, WRONG = shifted(0), shifted(1)


@eqx.filter_jit
def observe(lock: Lock, latent, h):
    return lock.observe(KEY, jnp.asarray(latent), h)


def play(policy: Policy, **options):
    """Episodes with every step recorded: one shape for most tests, to compile little."""
    return JaxTraceModel(LOCK).record(KEY, policy, N, steps=(0, 1, 2, 3, 4), **options)


def undo_hadamard(observations) -> np.ndarray:
    size = observations.shape[1]
    return np.asarray(observations) @ scipy.linalg.hadamard(size).T / size


def latent_of(observations) -> np.ndarray:
    return undo_hadamard(observations)[:, :3].argmax(axis=1)


def time_of(observations) -> np.ndarray:
    return undo_hadamard(observations)[:, 3 : H + 4].argmax(axis=1)


def binomial_error(p: float, n: int) -> float:
    return 5 * (p * (1 - p) / n) ** 0.5
