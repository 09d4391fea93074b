"""A replay buffer as a pytree of arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

Rows = TypeVar("Rows")
"""A pytree of arrays whose first axis counts rows."""


class ReplayBuffer(eqx.Module, Generic[Rows]):
    """The newest rows, such as transitions. Once it is full, new rows overwrite the oldest ones.

    The first `begin` rows are fixed; they hold offline data, for example.
    """

    rows: Rows
    added: Int[Array, ""]
    """Rows added so far, those that were overwritten included."""
    begin: int = eqx.field(static=True, default=0)

    @classmethod
    def create(cls, row: Rows, capacity: int) -> ReplayBuffer[Rows]:
        """An empty buffer for rows of the shapes and types of `row`, which has no row axis."""
        return cls(jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), row), jnp.zeros((), int))

    @property
    def capacity(self) -> int:
        """How many added rows fit."""
        return jax.tree.leaves(self.rows)[0].shape[self.added.ndim] - self.begin

    @property
    def filled(self) -> Int[Array, ""]:
        """How many added rows there are."""
        return jnp.minimum(self.added, self.capacity)

    def add(self, rows: Rows, keep: Bool[Array, " m"]) -> ReplayBuffer[Rows]:
        """Add the rows marked by `keep`, in order; if they do not all fit, the last of them."""
        number = jnp.cumsum(keep) - 1
        number = number - jnp.maximum(keep.sum() - self.capacity, 0)
        keep = keep & (number >= 0)
        nowhere = self.begin + self.capacity
        place = jnp.where(keep, self.begin + (self.added + number) % self.capacity, nowhere)
        written = jax.tree.map(lambda old, new: old.at[place].set(new, mode="drop"), self.rows, rows)
        return replace(self, rows=written, added=self.added + keep.sum())

    def sample(self, key: PRNGKeyArray, n: int) -> Rows:
        """`n` of the added rows, uniformly and with replacement."""
        index = self.begin + (jax.random.uniform(key, (n,)) * self.filled).astype(int)
        return jax.tree.map(lambda x: x[index], self.rows)
