"""Logs of the experts of Adroit tasks, for who has their weights and not the public data sets.

Users load `minari:D4RL/hammer/expert-v2`, `…/pen/…` or `…/relocate/…`. Where these are out of reach,

    python -m hyrlo.experiments.adroit_logs --task hammer --experts FOLDER --out states.npz

plays the policy that made them. Its weights are public but not part of this package (hand_dapg, Apache-2.0). FOLDER holds
them as `<task>_expert_policy.npz`, of a tanh network of two hidden layers of any width n, for states of o numbers and
actions of a numbers:

    W0 (n, o), b0 (n,), W1 (n, n), b1 (n,), W2 (a, n), b2 (a,)          layers: W x + b
    in_shift, in_scale (o,)                                             inputs are (state − in_shift) / (in_scale + 1e-8)
    out_shift, out_scale (a,)                                           the mean action is output · out_scale + out_shift
    log_std (a,)                                                        of the Gaussian noise on it
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
from hyrlo.envs import World

VARIABLE = "HYRLO_ADROIT_EXPERTS"
"""Environment variable with the folder of the weights."""
ARRAYS = ("W0", "b0", "W1", "b1", "W2", "b2", "log_std", "in_shift", "in_scale", "out_shift", "out_scale")
AT_ONCE = 512
"""Episodes kept in memory at a time with all that is recorded of them."""


class AdroitExpert(Policy):
    """A Gaussian around a network's output; without `noise` its mean. The ended flag of a state is ignored."""

    network: MLP
    in_shift: Float[Array, " obs"]
    in_scale: Float[Array, " obs"]
    out_shift: Float[Array, " act"]
    out_scale: Float[Array, " act"]
    log_std: Float[Array, " act"]
    noise: bool = eqx.field(static=True, default=True)

    def mean(self, states: Float[Array, "n obs"]) -> Float[Array, "n act"]:
        own = states[:, : len(self.in_shift)]
        outputs = self.network((own - self.in_shift) / (self.in_scale + 1e-8))
        return outputs * self.out_scale + self.out_shift

    def act(self, key: PRNGKeyArray, observations: Float[Array, "n obs"], h: Step) -> Actions:
        mean = self.mean(observations)
        return mean + jnp.exp(self.log_std) * jax.random.normal(key, mean.shape) if self.noise else mean


def expert_file(task: str, folder: str | Path | None = None) -> Path:
    """The weights of a task's expert in `folder`, by default the one that the environment variable names."""
    folder = folder or os.environ.get(VARIABLE)
    if not folder:
        raise HyrloError(
            f"{task} expert: no weights; set {VARIABLE}, or give --experts FOLDER where there is that option"
        )
    return Path(folder) / f"{task}_expert_policy.npz"


def load_expert(path: str | Path, world: World, noise: bool = True) -> AdroitExpert:
    """From an npz file as described above; weights of another task than that of `world` are an error."""
    stored = read_arrays(path, ARRAYS)
    missing = [name for name in ARRAYS if name not in stored]
    if missing:
        raise DataError(f"{path}: has no array named {missing[0]}; an expert's weights are {', '.join(ARRAYS)}")
    width, states, actions = len(stored["b0"]), own_size(world), world.spec.action_size
    shapes = {
        "W0": (width, states), "b0": (width,), "W1": (width, width), "b1": (width,), "W2": (actions, width),
        **dict.fromkeys(("in_shift", "in_scale"), (states,)),
        **dict.fromkeys(("b2", "log_std", "out_shift", "out_scale"), (actions,)),
    }  # fmt: skip
    for name, shape in shapes.items():
        if stored[name].shape != shape:
            raise DataError(
                f"{path}: {name} has shape {stored[name].shape}, not {shape}; give weights for {world.name}"
            )
        if not np.isfinite(stored[name]).all():
            raise DataError(f"{path}: {name}{np.argwhere(~np.isfinite(stored[name]))[0].tolist()} is not finite")
    weights = {name: jnp.asarray(stored[name], jnp.float32) for name in ARRAYS}
    layers = MLP(tuple(weights[f"W{i}"].T for i in range(3)), tuple(weights[f"b{i}"] for i in range(3)))
    return AdroitExpert(
        layers, weights["in_shift"], weights["in_scale"], weights["out_shift"], weights["out_scale"],
        weights["log_std"], noise,
    )  # fmt: skip


def own_size(world: World) -> int:
    """Size of the environment's own observations: states without the ended flag."""
    return world.spec.observation_size - world.spec.ends


def expert_states(world: World, expert: Policy, episodes: int, seed: int = 0) -> ObservationDataset:
    """The states of whole episodes, as logs hold them: without the ended flag."""
    states = np.concatenate([batch[0] for batch in _play(world, expert, episodes, seed)])
    return ObservationDataset.from_trajectories(states, f"{world.name} expert states, seed {seed}")


def expert_transitions(world: World, expert: Policy, episodes: int, seed: int = 0) -> TransitionDataset:
    """The same episodes with actions, clipped to [−1, 1] as the environment does, and rewards."""
    batches = zip(*_play(world, expert, episodes, seed), strict=True)
    states, actions, rewards = (np.concatenate(part) for part in batches)
    source = f"{world.name} expert transitions, seed {seed}"
    return TransitionDataset.from_trajectories(states, np.clip(actions, -1.0, 1.0), rewards, source)


def _play(
    world: World, expert: Policy, episodes: int, seed: int
) -> Iterator[tuple[Float[np.ndarray, "n h+1 obs"], Float[np.ndarray, "n h act"], Float[np.ndarray, "n h"]]]:
    """States, actions and rewards, some episodes at a time."""
    model, size = world.trace_model(), own_size(world)
    for begin in range(0, episodes, AT_ONCE):
        key = jax.random.fold_in(Keys.of_seed(seed).data, begin)
        batch = model.record(key, expert, min(AT_ONCE, episodes - begin), tuple(range(world.spec.horizon)))
        assert not batch.ended.any(), "episodes of Adroit tasks never end early"
        states = np.concatenate([batch.states, batch.next_states[-1:]])[..., :size]
        yield tuple(np.asarray(x).swapaxes(0, 1) for x in (states, batch.actions, batch.rewards))  # type: ignore[misc]
