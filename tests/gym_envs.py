"""Gymnasium environments that end early, misbehave or have unusual spaces, for the tests of the adapter.

Importing this module registers them, so that `gym:tests.gym_envs:Walk-v0` works in worker processes too.
"""

import copy
import os
import signal
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
    """A position on a line, from a random start; moves by action − 1. The arguments say when it does what, step by step.

    With `trap`, a file, the process kills itself at step 2 as long as the file is there.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(
        self, ends=None, cut=None, fails=None, odd=None, odd_reward=None, succeeds=None, key="success", trap=None
    ):
        self.ends, self.cut, self.fails, self.odd, self.odd_reward = ends, cut, fails, odd, odd_reward
        self.succeeds, self.key, self.trap = succeeds, key, trap

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.h = self.np_random.normal(), 0
        return self._observe(), {}

    def _observe(self):
        return np.array([self.position, np.nan if self.h == self.odd else self.h])

    def step(self, action):
        if self.trap and self.h == 2 and Path(self.trap).exists():
            Path(self.trap).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.h == self.fails:
            raise ZeroDivisionError("division by zero")
        self.position += int(action) - 1
        self.h += 1
        reward = np.inf if self.h - 1 == self.odd_reward else float(self.h)
        info = {} if self.succeeds is None else {self.key: self.h == self.succeeds}
        return self._observe(), reward, self.h == self.ends, self.h == self.cut, info

    def set_state(self, state):
        self.position, self.h = float(state[0]), int(state[1])

    def get_state(self):
        return np.array([self.position, self.h])


OBSERVATIONS = {
    "dict": spaces.Dict(
        {"b": spaces.Box(-1, 1, (2, 2), np.float32), "a": spaces.Discrete(3), "c": spaces.MultiBinary(2)}
    ),
    "tuple": spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Box(0, 255, (2,), np.uint8))),
    "discrete": spaces.Discrete(4, start=2),
    "picture": spaces.Box(0, 255, (2, 3, 1), np.uint8),
    "text": spaces.Text(4),
    "sequence": spaces.Dict({"x": spaces.Sequence(spaces.Discrete(2))}),
}
ACTIONS = {
    "discrete": spaces.Discrete(3, start=-1),
    "box": spaces.Box(np.array([[-2.0, 0.0]], np.float32), np.array([[2.0, 10.0]], np.float32)),
    "whole": spaces.Box(0, 10, (1,), np.int32),
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "many": spaces.MultiDiscrete([2, 3]),
    "bits": spaces.MultiBinary(3),
}


class Spaces(gymnasium.Env):
    """Any spaces; observations are samples, the reward is the sum of what arrives as action, which must fit."""

    def __init__(self, observations="picture", actions="discrete"):
        self.observation_space = copy.deepcopy(OBSERVATIONS[observations])  # each samples by itself
        self.action_space = ACTIONS[actions]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return self.observation_space.sample(), float(np.sum(action)), False, False, {}


class Tempting(gymnasium.Env):
    """Two steps. First, action 0 pays 1 and ends the episode, action 1 pays 0. Then action 1 pays 2, action 0 nothing.

    The episode that ended early shows the observation of the second step. To take it for that step makes action 0 look
    worth 1 + 2, and the best return is 2.
    """

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    first, second = np.eye(2, dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.h = 0
        return self.first, {}

    def step(self, action):
        self.h += 1
        if self.h == 1:
            return self.second, float(action == 0), bool(action == 0), False, {}
        return self.second, 2.0 * float(action), True, False, {}


gymnasium.register("Tempting-v0", entry_point="tests.gym_envs:Tempting", max_episode_steps=2)
gymnasium.register("Walk-v0", entry_point="tests.gym_envs:Walk", max_episode_steps=8)
gymnasium.register("Spaces-v0", entry_point="tests.gym_envs:Spaces")
