"""What states are compared in: whitened coordinates, and *ended* as a place of its own.

A dimension's unit must not decide how much it counts, so states are whitened. An episode that has ended is in no state at
all, so it is compared as a share of the episodes and not as a point among the states. The kernel on S ∪ {ended} is

    k(x, y) = k_RBF(white(x), white(y))  if both go on,   1  if both have ended,   0  otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hyrlo.core.whitening import Whitening, moments

LEAST_SPREAD = 0.1  # of the states of one step, as a share of the spread of all states


class Compared(NamedTuple):
    """States as they are compared."""

    white: Float[Array, "n d"]
    """Whitened; where the episode has ended, zeros."""
    ended: Float[Array, " n"]
    """1 if the episode has ended, else 0; a learned model may give it a gradient."""

    @classmethod
    def plain(cls, states: Float[Array, "n d"]) -> Compared:
        """States as they are, none ended."""
        return cls(states, jnp.zeros(len(states)))


class StateUnits(eqx.Module):
    """Whitens states by those of episodes that go on. Where episodes can end, the last dimension says whether they have."""

    whitening: Whitening
    ends: bool = eqx.field(static=True, default=False)

    @classmethod
    def of(cls, states: Float[Array, "n obs"], ends: bool, weights: Float[Array, " n"] | None = None) -> StateUnits:
        """By the states that are given."""
        return cls(Whitening.of(states, going(states, ends, weights)), ends)

    @classmethod
    def of_steps(cls, steps: Sequence[np.ndarray], ends: bool) -> StateUnits:
        """By the states of all steps."""
        return cls.of(jnp.asarray(np.concatenate(steps)), ends)

    def of_step(
        self, states: Float[Array, "m obs"], weights: Float[Array, " m"], least: float = LEAST_SPREAD
    ) -> StateUnits:
        """By the states of one step, where these are by all: a scale is at least the share `least` of that of all states.

        With a small share, what is mere noise at this step counts as much as all else. If all episodes have ended by
        then, the same as these.
        """
        weights = going(states, self.ends, weights)
        shift, deviation = moments(states, weights)
        scale = jnp.maximum(deviation, least * self.whitening.scale)
        own, everywhere = Whitening(shift, scale), self.whitening
        some = weights.sum() > 0
        own = Whitening(*(jnp.where(some, getattr(own, x), getattr(everywhere, x)) for x in ("shift", "scale")))
        return StateUnits(own, self.ends)

    def __call__(self, states: Float[Array, "n obs"]) -> Compared:
        white = self.whitening(states)
        if not self.ends:
            return Compared.plain(white)
        ended = states[:, -1]
        return Compared(jnp.where(ended[:, None] > 0.5, 0.0, white[:, :-1]), ended)

    def inputs(self, states: Float[Array, "n obs"]) -> Float[Array, "n obs"]:
        """For networks: whitened states, zeros where the episode has ended, and whether it has."""
        white, ended = self(states)
        return jnp.concatenate([white, ended[:, None]], axis=1) if self.ends else white

    def centred(self, states: Float[Array, "n obs"]) -> Float[Array, "n obs"]:
        """The states as they are, but those of ended episodes in the middle of the others, with their flag.

        The absorbing state is all zeros, which is far from every other in some units.
        """
        if not self.ends:
            return states
        return jnp.where(states[:, -1:] > 0.5, self.whitening.shift.at[-1].set(1.0), states)


def going(states: Float[Array, "n obs"], ends: bool, weights: Float[Array, " n"] | None = None) -> Float[Array, " n"]:
    """The weights of states of episodes that go on, 0 for those that have ended."""
    weights = jnp.ones(len(states)) if weights is None else weights
    return weights * (states[:, -1] < 0.5) if ends else weights
