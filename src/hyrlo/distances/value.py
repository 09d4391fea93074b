"""The value-induced IPM of Eq. 1, and total variation: witness classes with exact best responses.

    G_h = { max_a f(·, a) − f(·, a′) | f ∈ F_h, a′ ∈ A },      IPM_G(p, q) = max_{g ∈ G} | E_p g − E_q g |

On finitely many states a witness is a vector of length S, and F_h an array of shape (|F|, S, A). Elsewhere F_h is a list of
functions from observations to action values, and the IPM is that between samples (`value_ipm`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float

from hyrlo.core.errors import HyrloError

Witness = Float[np.ndarray, " states"]
Values = Float[np.ndarray, "f states actions"]
ValueFunction = Callable[[Float[np.ndarray, "n obs"]], Float[np.ndarray, "n actions"]]


def value_witnesses(values: Values) -> Float[np.ndarray, "g states"]:
    """Eq. 1: `max_a f(·, a) − f(·, a′)` for every f and a′; |F|·A witnesses."""
    gaps = values.max(axis=-1, keepdims=True) - values
    return gaps.transpose(0, 2, 1).reshape(-1, values.shape[1])


def greedy_witnesses(values: Values) -> Float[np.ndarray, "g states"]:
    """`max_a f(·, a) − f(·, π_{f′}(·))` for f, f′ ∈ F with π_{f′} greedy: at most |F|² witnesses.

    Eq. 1 compares with one action a′ for all states. The proof of the guarantee compares with the action of the learned
    policy, which is greedy for some f′ ∈ F and depends on the state: the proof uses this class.
    """
    gaps = values.max(axis=-1, keepdims=True) - values
    played = np.unique(values.argmax(axis=-1), axis=0)
    chosen = gaps[:, np.arange(values.shape[1]), played]
    return chosen.reshape(-1, values.shape[1])


class Witnesses(Protocol):
    """A class of discriminators with an exact best response."""

    @property
    def spread(self) -> float:
        """The largest difference between two values of one witness."""
        ...

    def best_response(self, gap: Witness) -> tuple[float, Witness]:
        """The largest `E_p g − E_q g` and the maximiser g, for `gap = p − q`."""
        ...


@dataclass(frozen=True)
class WitnessTable:
    """A list of witnesses. With `signed`, their negatives are witnesses too, which makes the IPM an absolute value."""

    functions: Float[np.ndarray, "g states"]
    signed: bool = True

    def __post_init__(self) -> None:
        if self.functions.ndim != 2 or not len(self.functions):
            raise HyrloError(f"witnesses have shape {self.functions.shape}; give (witnesses, states), at least one")
        bad = np.argwhere(~np.isfinite(self.functions))
        if len(bad):
            raise HyrloError(f"witness {bad[0][0]} is not finite at state {bad[0][1]}; give finite numbers")

    @property
    def spread(self) -> float:
        return float(np.ptp(self.functions, axis=1).max())

    def best_response(self, gap: Witness) -> tuple[float, Witness]:
        payoffs = self.functions @ gap
        best = int(np.argmax(np.abs(payoffs) if self.signed else payoffs))
        sign = -1.0 if self.signed and payoffs[best] < 0 else 1.0
        return float(sign * payoffs[best]), sign * self.functions[best]


@dataclass(frozen=True)
class BoundedWitnesses:
    """All functions with values between −1/2 and 1/2: the IPM is total variation."""

    spread: float = 1.0

    def best_response(self, gap: Witness) -> tuple[float, Witness]:
        return 0.5 * float(np.abs(gap).sum()), 0.5 * np.sign(gap)


def ipm(witnesses: Witnesses, p: Witness, q: Witness) -> float:
    """`IPM(p, q)` between two distributions over states."""
    return witnesses.best_response(p - q)[0]


def total_variation(p: Witness, q: Witness) -> float:
    return ipm(BoundedWitnesses(), p, q)


def value_ipm(
    values: Sequence[ValueFunction], x: Float[np.ndarray, "n obs"], y: Float[np.ndarray, "m obs"]
) -> tuple[float, tuple[int, int]]:
    """Eq. 1's IPM between two samples of observations, and the best response: which f, and which action a′."""
    if not values:
        raise HyrloError("value_ipm: no value functions; give at least one")
    means = []
    for number, f in enumerate(values):
        of_x, of_y = np.asarray(f(x), float), np.asarray(f(y), float)
        for name, table in (("first", of_x), ("second", of_y)):
            bad = np.argwhere(~np.isfinite(table))
            if len(bad):
                raise HyrloError(
                    f"value_ipm: function {number} is not finite at observation {bad[0][0]} of the {name} sample"
                )
        means.append([(t.max(axis=1, keepdims=True) - t).mean(axis=0) for t in (of_x, of_y)])
    gaps = np.abs(np.array([of_x - of_y for of_x, of_y in means]))
    best, action = (int(i) for i in np.unravel_index(int(gaps.argmax()), gaps.shape))
    return float(gaps[best, action]), (best, action)
