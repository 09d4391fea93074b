"""Worlds with action vectors whose best policies are known: a point that is pushed, s′ = s + step · a + noise."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from hyrlo.core.access import Spec
from hyrlo.data.states import ObservationDataset


class PointMass(eqx.Module):
    """Starts near zero; pays −|s − goal| at every step. `discrete`: push left, not at all, or right."""

    horizon: int = eqx.field(static=True, default=5)
    step_size: float = 0.5
    noise: float = 0.02
    goal: float = 1.0
    discrete: bool = eqx.field(static=True, default=False)

    @property
    def spec(self):
        return Spec(self.horizon, 1, actions=3) if self.discrete else Spec(self.horizon, 1, actions=0, action_size=1)

    def initial(self, key, n):
        return 0.1 * jax.random.normal(key, (n, 1))

    def observe(self, key, latent, h):
        return latent

    def step(self, key, latent, actions, h):
        push = actions[:, None] - 1.0 if self.discrete else jnp.clip(actions, -1.0, 1.0)
        latent = latent + self.step_size * push + self.noise * jax.random.normal(key, latent.shape)
        reward = -jnp.abs(latent[:, 0] - self.goal)
        return latent, reward, reward > -0.1


class Coasting(PointMass):
    """Only the position is observed, and a push is felt one step later: x′ = x + v, v′ = v / 2 + step · a."""

    def initial(self, key, n):
        return jnp.concatenate([super().initial(key, n), jnp.zeros((n, 1))], axis=1)

    def observe(self, key, latent, h):
        return latent[:, :1]

    def step(self, key, latent, actions, h):
        place, speed = latent[:, :1], latent[:, 1:]
        moved = place + speed + self.noise * jax.random.normal(key, place.shape)
        reward = -jnp.abs(moved[:, 0] - self.goal)
        speed = speed / 2 + self.step_size * jnp.clip(actions, -1.0, 1.0)
        return jnp.concatenate([moved, speed], axis=1), reward, reward > -0.1


def drifting(horizon, n=2000, speed=0.2, spread=0.1, seed=0):
    """States that move to the right: N(speed · h, spread²) at step h."""
    rng = np.random.default_rng(seed)
    steps = (speed * h + spread * rng.standard_normal((n, 1)) for h in range(horizon + 1))
    return ObservationDataset(tuple(s.astype(np.float32) for s in steps))
