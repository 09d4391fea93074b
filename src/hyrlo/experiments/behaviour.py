"""Scripted behaviour policies for classic control, from which logs of mixed quality are made."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from hyrlo.core.policies import Actions, Policy, Step


class Pump(Policy):
    """MountainCar: push the way the car is moving. `strength` 0 pushes with action 0 or 2, else with a vector of that size."""

    strength: float = 0.0

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        forwards = observations[:, 1] >= 0
        if not self.strength:
            return jnp.where(forwards, 2, 0)
        wish = jnp.where(forwards, self.strength, -self.strength)
        return wish[:, None] + 0.1 * jax.random.normal(key, (len(observations), 1))


class Balance(Policy):
    """CartPole: push towards the side on which the pole is falling; the cart's own place is not looked at."""

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        return (observations[:, 2] + 0.5 * observations[:, 3] > 0).astype(int)


class SwingUp(Policy):
    """Pendulum: add energy while there is too little of it, hold near the top; with noise."""

    noise: float = 0.3

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        cos, sin, speed = observations[:, 0], observations[:, 1], observations[:, 2]
        energy = speed**2 / 2 + 15 * cos  # 15 at rest at the top
        pump = jnp.sign(speed) * jnp.sign(15 - energy)
        hold = -(5 * sin + speed)
        wish = jnp.clip(jnp.where(cos > 0.9, hold, pump), -1.0, 1.0)
        return wish[:, None] + self.noise * jax.random.normal(key, (len(observations), 1))
