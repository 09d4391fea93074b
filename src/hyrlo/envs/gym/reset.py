"""Resets an environment to a simulator state, or to the state of an observation."""

from __future__ import annotations

import importlib
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import (
    AcrobotEnv,
    CartPoleEnv,
    Continuous_MountainCarEnv,
    MountainCarEnv,
    PendulumEnv,
)
from jaxtyping import Float

from hyrlo.core.errors import AccessError
from hyrlo.envs.gym.wrappers import Absorbing, SetState


@runtime_checkable
class Resettable(Protocol):
    """A simulator whose state can be read and restored exactly."""

    def get_state(self) -> Float[np.ndarray, " state"]: ...

    def set_state(self, state: Float[np.ndarray, " state"]) -> None: ...


class MujocoState:
    """The whole state of a MuJoCo simulation, time and warm start included."""

    def __init__(self, env: gymnasium.Env):
        self.mujoco: Any = importlib.import_module("mujoco")  # need not be installed
        self.simulation: Any = env.unwrapped
        self.kind = self.mujoco.mjtState.mjSTATE_INTEGRATION

    def get_state(self) -> Float[np.ndarray, " state"]:
        state = np.empty(self.mujoco.mj_stateSize(self.simulation.model, self.kind))
        self.mujoco.mj_getState(self.simulation.model, self.simulation.data, state, self.kind)
        return state

    def set_state(self, state: Float[np.ndarray, " state"]) -> None:
        self.mujoco.mj_setState(self.simulation.model, self.simulation.data, state, self.kind)
        self.mujoco.mj_forward(self.simulation.model, self.simulation.data)


def resettable(env: gymnasium.Env) -> Resettable:
    """The environment itself if it has `get_state` and `set_state`; for MuJoCo, an adapter with both."""
    if isinstance(env.unwrapped, Resettable):
        return env.unwrapped
    if _is_mujoco(env):
        return MujocoState(env)
    raise AccessError(f"{env}: its state cannot be read and set; give it methods get_state() and set_state(state)")


def _is_mujoco(env: gymnasium.Env) -> bool:
    """Checked without importing MuJoCo, which may not be installed."""
    return all(hasattr(env.unwrapped, name) for name in ("model", "data", "set_state", "init_qpos"))


def set_cart_pole(env: gymnasium.Env, observation: Float[np.ndarray, " obs"]) -> bool:
    inner: Any = env.unwrapped
    inner.state, inner.steps_beyond_terminated = observation.astype(np.float64), None
    return bool(abs(observation[0]) > inner.x_threshold or abs(observation[2]) > inner.theta_threshold_radians)


def set_mountain_car(env: gymnasium.Env, observation: Float[np.ndarray, " obs"]) -> bool:
    inner: Any = env.unwrapped
    inner.state = observation.astype(np.float64)
    return bool(observation[0] >= inner.goal_position and observation[1] >= inner.goal_velocity)


def set_pendulum(env: gymnasium.Env, observation: Float[np.ndarray, " obs"]) -> None:
    cosine, sine, speed = observation.astype(np.float64)
    env.unwrapped.state = np.array([np.arctan2(sine, cosine), speed])  # type: ignore[attr-defined]


def set_acrobot(env: gymnasium.Env, observation: Float[np.ndarray, " obs"]) -> bool:
    inner: Any = env.unwrapped
    cosine1, sine1, cosine2, sine2, *speeds = observation.astype(np.float64)
    inner.state = np.array([np.arctan2(sine1, cosine1), np.arctan2(sine2, cosine2), *speeds])
    return bool(inner._terminal())


def set_positions_and_velocities(env: gymnasium.Env, observation: Float[np.ndarray, " obs"]) -> None:
    """For MuJoCo environments whose observation is all positions, then all velocities."""
    inner: Any = env.unwrapped
    inner.set_state(*np.split(observation.astype(np.float64), [inner.model.nq]))


KNOWN: tuple[tuple[type[gymnasium.Env], SetState], ...] = (
    (CartPoleEnv, set_cart_pole),
    (MountainCarEnv, set_mountain_car),
    (Continuous_MountainCarEnv, set_mountain_car),
    (PendulumEnv, set_pendulum),
    (AcrobotEnv, set_acrobot),
)


def known_set_state(name: str, env: Absorbing) -> SetState:
    """The function of a known environment."""
    inner: Any = env.unwrapped
    for kind, set_state in KNOWN:
        if isinstance(inner, kind):
            return set_state
    if _is_mujoco(env) and _observes_everything(env):
        return set_positions_and_velocities
    raise AccessError(
        f"{name}: how to reset it to an observation is not known; give reset_model(set_state=...), a function of "
        "(env, observation), or use an algorithm with trace access such as foobar"
    )


def _observes_everything(env: Absorbing) -> bool:
    """Whether the observation is all positions and velocities: resetting to an observation gives the same observation."""
    inner: Any = env.unwrapped
    if inner.model.nq + inner.model.nv != env.size or not hasattr(inner, "_get_obs"):
        return False
    observation = env.env.reset(seed=0)[0]
    env.env.reset(seed=1)
    set_positions_and_velocities(env, np.asarray(observation))
    return bool(np.allclose(inner._get_obs(), observation))
