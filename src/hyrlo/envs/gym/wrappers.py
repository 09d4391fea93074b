"""One Gymnasium environment as algorithms see it: flat states with an ended flag, actions in [−1, 1].

Worker processes import this module; it works in NumPy and needs no accelerator.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim
from jaxtyping import Float

from hyrlo.core.errors import HyrloError
from hyrlo.envs.gym.answers import (
    NoAnswer,
    WrongAnswer,
    answers_within,
    describe,
    flattener,
    number_of,
    success_of,
    truth_of,
    unpacked,
)

SetState = Callable[[gymnasium.Env, Float[np.ndarray, " obs"]], "bool | None"]
"""Puts an environment into the state of an observation; True says that the episode ends with this observation."""
RESET, STEP = ("observation", "info"), ("observation", "reward", "terminated", "truncated", "info")
"""What an environment returns."""


MOST_COMBINATIONS = 1000
"""Of a MultiDiscrete action, of which each becomes one discrete action."""


class Start(NamedTuple):
    """How the episodes of a batch begin. The first `rows` environments play, the others are idle."""

    rows: int
    observations: Float[np.ndarray, "n obs"] | None = None
    """Initial states, with the flag; None: the environment's own initial distribution."""
    at: int = 0
    """The step that `observations` belong to."""
    set_state: Any = None
    """A `SetState` in a `gymnasium.vector.utils.CloudpickleWrapper`, which can be sent to a worker process."""


class Absorbing(gymnasium.Wrapper):
    """Flat states with a last dimension, the ended flag: 0 while the episode runs, 1 after its end.

    The last observation of an episode is still a state of flag 0, as in logs. After it the state is absorbing: zeros and
    flag 1, with rewards 0, and the inner environment is not stepped until `reset`. `terminated` and `truncated` are always
    False, so that vector environments do not start a new episode by themselves. `info` has instead:

    * `ended`: this step ended the episode. Reaching the horizon does not count.
    * `success`: `success` or `is_success` of the environment, when it changes.
    * `error`: what the environment did wrong, in words; it is not stepped again until `reset`.

    `timeout` is how many seconds a reset or step may take; None: any time.
    """

    def __init__(self, env: gymnasium.Env, horizon: int, index: int = 0, timeout: float | None = None):
        super().__init__(env)
        self.horizon, self.index, self.timeout = horizon, index, timeout
        self.flat = flattener(env.observation_space)
        self.size = flatdim(env.observation_space)
        if self.size < 1:
            raise HyrloError(
                f"observation space {env.observation_space} has no dimensions; observations need at least one"
            )
        self.convert, self.action_space = action_converter(env.action_space)
        self.observation_space = spaces.Box(-np.inf, np.inf, (self.size + 1,), np.float32)
        self.absorbed = np.zeros(self.size + 1, np.float32)
        self.absorbed[-1] = 1
        self.over = True
        self.steps = 0
        self.success: bool | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        start: Start | None = (options or {}).get("start")
        self.steps, self.success = 0, None
        self.over = start is not None and self._rests(start)
        if self.over:
            return self.absorbed, {"ended": True}
        try:
            with answers_within(self.timeout):
                answer = self.env.reset(seed=seed, options=None if start else options)
                observation, info = unpacked(answer, "reset", RESET)
                state, news = self._state(observation), self._news(info)
                if start is None or start.observations is None:
                    return state, news
                self.steps = start.at
                self.over = bool(start.set_state.fn(self.env, start.observations[self.index][:-1]))
            return start.observations[self.index], {**news, "ended": True} if self.over else news
        except BaseException as error:
            return self.absorbed, self._failed(error)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.over:
            return self.absorbed, 0.0, False, False, {}
        try:
            with answers_within(self.timeout):
                answer = self.env.step(self.convert(action))
                observation, reward, terminated, truncated, info = unpacked(answer, "step", STEP)
            state, reward = self._state(observation), number_of(reward)
            terminated, truncated = truth_of(terminated, "terminated"), truth_of(truncated, "truncated")
            news = self._news(info) if info else {}
        except BaseException as error:
            return self.absorbed, 0.0, False, False, self._failed(error)
        self.steps += 1
        if terminated or truncated:
            self.over = True
            if terminated or self.steps < self.horizon:
                news["ended"] = True
        return state, reward, False, False, news

    def _rests(self, start: Start) -> bool:
        """Whether this environment is idle: its row does not play, or it begins in the absorbing state."""
        if self.index >= start.rows:
            return True
        return start.observations is not None and bool(start.observations[self.index, -1] > 0.5)

    def _state(self, observation: Any) -> Float[np.ndarray, " obs"]:
        state = np.zeros(self.size + 1, np.float32)
        state[:-1] = self.flat(observation)
        return state

    def _news(self, info: dict[str, Any]) -> dict[str, Any]:
        """Success, when it changes: merging the `info` of many environments is slow."""
        said = info.get("success", info.get("is_success"))
        if said is None or (success := success_of(said)) is self.success or self.success:
            return {}
        self.success = success
        return {"success": success}

    def _failed(self, error: BaseException) -> dict[str, Any]:
        """Whatever it raises, `SystemExit` included, is its error; only Ctrl-C is the user's."""
        self.over = True
        if isinstance(error, KeyboardInterrupt):
            raise error
        return {"error": str(error) if isinstance(error, WrongAnswer | NoAnswer) else f"raised {describe(error)}"}

    def close(self) -> None:
        """An environment that fails at its end spoils no result: it is said, and that is all."""
        try:
            with answers_within(self.timeout):
                super().close()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            said = str(error) if isinstance(error, NoAnswer) else f"raised {describe(error)}"
            print(f"warning: {type(self.env.unwrapped).__name__}: {said} when it was closed", file=sys.stderr)


def action_converter(space: spaces.Space) -> tuple[Callable[[Any], Any], spaces.Space]:
    """A function from algorithms' actions (0 … n−1, or in [−1, 1]) to the environment's, and the algorithms' space.

    The function takes one action, or a batch of them.
    """
    if isinstance(space, spaces.Discrete):
        first = np.int64(space.start)
        return lambda action: action + first, spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        table = combinations(space)
        return lambda action: table[action], spaces.Discrete(len(table))
    if not isinstance(space, spaces.Box):
        raise HyrloError(
            f"unsupported action space {space}; actions are Discrete, MultiDiscrete or a Box: wrap the environment with "
            "gymnasium.wrappers.TransformAction, register that and give gym:MODULE:ID"
        )
    if space.shape and 0 in space.shape:
        raise HyrloError(f"action space {space} has no dimensions; actions need at least one")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all() and (space.low <= space.high).all()):
        raise HyrloError(
            f"the bounds of action space {space} are not finite, or not in order, so that [-1, 1] cannot be scaled to them; "
            "wrap the environment with gymnasium.wrappers.TransformAction and a bounded Box, and register that"
        )
    shape, dtype = space.shape, space.dtype
    low, half = space.low.astype(np.float64), (space.high.astype(np.float64) - space.low) / 2
    whole = np.issubdtype(dtype, np.integer)

    def rescale(action: Float[np.ndarray, "*n act"]) -> np.ndarray:
        unit = np.asarray(action, np.float64)
        unit = unit.reshape(*unit.shape[:-1], *shape).clip(-1.0, 1.0)
        scaled = low + (unit + 1) * half
        return (np.rint(scaled) if whole else scaled).astype(dtype)

    return rescale, spaces.Box(-1.0, 1.0, (int(np.prod(shape)),), np.float32)


def combinations(space: spaces.MultiDiscrete) -> np.ndarray:
    """All actions of a space, as rows: row i is what the discrete action i stands for. The last choice varies first."""
    sizes = np.ravel(space.nvec)
    count = float(np.prod(sizes, dtype=float))
    if count > MOST_COMBINATIONS:
        raise HyrloError(
            f"unsupported action space {space}: it has {count:,.0f} combinations, and at most {MOST_COMBINATIONS:,} can be "
            "discrete actions; wrap the environment with gymnasium.wrappers.TransformAction and a bounded Box"
        )
    rows = np.stack(np.unravel_index(np.arange(int(count)), sizes), axis=1).reshape(-1, *space.shape)
    return (rows + space.start).astype(space.dtype)
