"""Logs of an expert of the Adroit hammer, for who has its weights and not the public data set.

Users load `minari:D4RL/hammer/expert-v2`. Where that is out of reach,

    python -m hyrlo.experiments.hammer_logs --expert WEIGHTS.npz --out states.npz

plays the policy that made it, whose weights are public but not part of this package (hand_dapg, Apache-2.0). The weights
are an npz file, of a tanh network of two hidden layers of any width n:

    W0 (n, 46), b0 (n,), W1 (n, n), b1 (n,), W2 (26, n), b2 (26,)       layers: W x + b
    in_shift, in_scale (46,)                                            inputs are (state − in_shift) / (in_scale + 1e-8)
    out_shift, out_scale (26,)                                          the mean action is output · out_scale + out_shift
    log_std (26,)                                                       of the Gaussian noise on it
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from hyrlo.core.errors import DataError, HyrloError
from hyrlo.core.keys import Keys
from hyrlo.core.networks import MLP
from hyrlo.core.policies import Actions, Policy, Step
from hyrlo.data.npz import read_arrays
from hyrlo.data.states import ObservationDataset
from hyrlo.data.transitions import TransitionDataset
from hyrlo.envs.hammer import ACTION_SIZE, NAME, OBSERVATION_SIZE, HammerWorld

VARIABLE = "HYRLO_HAMMER_EXPERT"
"""Environment variable with the path of the weights."""
ARRAYS = ("W0", "b0", "W1", "b1", "W2", "b2", "log_std", "in_shift", "in_scale", "out_shift", "out_scale")
AT_ONCE = 512
"""Episodes kept in memory at a time with all that is recorded of them."""


class HammerExpert(Policy):
    """A Gaussian around a network's output; without `noise` its mean."""

    network: MLP
    in_shift: Float[Array, " obs"]
    in_scale: Float[Array, " obs"]
    out_shift: Float[Array, " act"]
    out_scale: Float[Array, " act"]
    log_std: Float[Array, " act"]
    noise: bool = eqx.field(static=True, default=True)

    def mean(self, observations: Float[Array, "n obs"]) -> Float[Array, "n act"]:
        outputs = self.network((observations - self.in_shift) / (self.in_scale + 1e-8))
        return outputs * self.out_scale + self.out_shift

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        mean = self.mean(observations)
        return mean + jnp.exp(self.log_std) * jax.random.normal(key, mean.shape) if self.noise else mean


def load_expert(path: str | Path | None = None, noise: bool = True) -> HammerExpert:
    """From an npz file as described above; by default the one that the environment variable names."""
    path = path or os.environ.get(VARIABLE)
    if not path:
        raise HyrloError(f"{NAME} expert: no weights; set {VARIABLE}, or give --expert PATH where there is that option")
    stored = read_arrays(path, ARRAYS)
    missing = [name for name in ARRAYS if name not in stored]
    if missing:
        raise DataError(f"{path}: has no array named {missing[0]}; an expert's weights are {', '.join(ARRAYS)}")
    width = len(stored["b0"])
    shapes = {
        "W0": (width, OBSERVATION_SIZE), "b0": (width,), "W1": (width, width), "b1": (width,),
        "W2": (ACTION_SIZE, width), **dict.fromkeys(("in_shift", "in_scale"), (OBSERVATION_SIZE,)),
        **dict.fromkeys(("b2", "log_std", "out_shift", "out_scale"), (ACTION_SIZE,)),
    }  # fmt: skip
    for name, shape in shapes.items():
        if stored[name].shape != shape:
            raise DataError(f"{path}: {name} has shape {stored[name].shape}, not {shape}; give weights for {NAME}")
        if not np.isfinite(stored[name]).all():
            raise DataError(f"{path}: {name}{np.argwhere(~np.isfinite(stored[name]))[0].tolist()} is not finite")
    weights = {name: jnp.asarray(stored[name], jnp.float32) for name in ARRAYS}
    layers = MLP(tuple(weights[f"W{i}"].T for i in range(3)), tuple(weights[f"b{i}"] for i in range(3)))
    return HammerExpert(
        layers, weights["in_shift"], weights["in_scale"], weights["out_shift"], weights["out_scale"],
        weights["log_std"], noise,
    )  # fmt: skip


def expert_states(world: HammerWorld, expert: Policy, episodes: int, seed: int = 0) -> ObservationDataset:
    """The states of whole episodes."""
    states = np.concatenate([batch[0] for batch in _play(world, expert, episodes, seed)])
    return ObservationDataset.from_trajectories(states, f"{NAME} expert states, seed {seed}")


def expert_transitions(world: HammerWorld, expert: Policy, episodes: int, seed: int = 0) -> TransitionDataset:
    """The same episodes with actions, clipped to [−1, 1] as the environment does, and rewards."""
    batches = zip(*_play(world, expert, episodes, seed), strict=True)
    states, actions, rewards = (np.concatenate(part) for part in batches)
    source = f"{NAME} expert transitions, seed {seed}"
    return TransitionDataset.from_trajectories(states, np.clip(actions, -1.0, 1.0), rewards, source)


def _play(
    world: HammerWorld, expert: Policy, episodes: int, seed: int
) -> Iterator[tuple[Float[np.ndarray, "n h+1 obs"], Float[np.ndarray, "n h act"], Float[np.ndarray, "n h"]]]:
    """States, actions and rewards, some episodes at a time."""
    model, steps = world.trace_model(), tuple(range(world.horizon))
    for begin in range(0, episodes, AT_ONCE):
        key = jax.random.fold_in(Keys.of_seed(seed).data, begin)
        batch = model.record(key, expert, min(AT_ONCE, episodes - begin), steps)
        states, actions, rewards = (np.asarray(x).swapaxes(0, 1) for x in (batch.states, batch.actions, batch.rewards))
        yield np.concatenate([states, np.asarray(batch.next_states[-1])[:, None]], axis=1), actions, rewards
