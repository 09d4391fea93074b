"""A zoo of Gymnasium environments that misbehave, each in one way.

Importing this module registers them: `gym:tests.bad_envs:Bad-v0` takes the name of a fault and the step that shows it.
"""

import contextlib
import time

import gymnasium
import numpy as np
from gymnasium import spaces

STEP = 2
"""The step with the fault."""
BOX = spaces.Box(-10, 10, (2,), np.float32)


class Abort(BaseException):
    """What neither `except Exception` nor Python itself knows."""


class Nameless(Exception):
    def __str__(self):
        raise ValueError("no message")


def raises(error):
    def fault(*_):
        raise error

    return fault


def hangs(*_):
    while True:
        time.sleep(0.01)


def hangs_in_spite_of_handlers(*_):
    while True:
        with contextlib.suppress(Exception):
            time.sleep(0.01)


def part(number, value):
    """Another value in place of one of observation, reward, terminated, truncated, info."""
    return lambda answer: (*answer[:number], value, *answer[number + 1 :])


FAULTS = {
    # what is returned is no answer of a step
    "four things": (lambda a: a[:4], "returned 4 values from step"),
    "six things": (lambda a: (*a, 1), "returned 6 values from step"),
    "nothing": (lambda a: None, "returned None from step"),
    "a number": (lambda a: 3.0, "returned 3.0 from step"),
    "an array": (lambda a: np.zeros(5), "from step"),
    # info
    "info list": (part(4, []), "returned [] as info"),
    "info none": (part(4, None), "returned None as info"),
    "info text": (part(4, "success"), "returned 'success' as info"),
    "success text": (part(4, {"success": "no"}), "returned 'no' as success"),
    "success nan": (part(4, {"is_success": np.nan}), "returned nan as success"),
    # rewards
    "reward complex": (part(1, 1j), "returned 1j as reward"),
    "reward numpy complex": (part(1, np.complex128(1)), "as reward, which is not one real number"),
    "reward infinite": (part(1, np.inf), "reward is inf"),
    "reward nan": (part(1, float("nan")), "reward is nan"),
    "reward beyond float32": (part(1, 1e300), "reward is 1e+300"),
    "reward beyond all floats": (part(1, 10**400), "as reward"),
    "reward two": (part(1, np.ones(2)), "returned array([1., 1.]) as reward"),
    "reward empty": (part(1, []), "returned [] as reward"),
    "reward many": (part(1, np.ones((3, 3))), "returned float64 of shape (3, 3) as reward"),
    "reward none": (part(1, None), "returned None as reward"),
    "reward text": (part(1, "1.0"), "returned '1.0' as reward"),
    # ends
    "terminated text": (part(2, "False"), "returned 'False' as terminated"),
    "terminated nan": (part(2, np.nan), "returned nan as terminated"),
    "terminated none": (part(2, None), "returned None as terminated"),
    "terminated two": (part(2, np.array([False, True])), "as terminated, which is neither True nor False"),
    "terminated array": (part(2, np.array([True])), "as terminated"),
    "terminated number": (part(2, 7), "returned 7 as terminated"),
    "truncated text": (part(3, ""), "returned '' as truncated"),
    "truncated none": (part(3, None), "returned None as truncated"),
    # observations
    "observation (1,)": (part(0, np.ones(1, np.float32)), "observation of shape (1,) where its space has (2,)"),
    "observation ()": (part(0, np.float32(1)), "observation of shape () where its space has (2,)"),
    "observation (3,)": (part(0, np.ones(3, np.float32)), "observation of shape (3,)"),
    "observation (1, 2)": (part(0, np.ones((1, 2), np.float32)), "observation of shape (1, 2)"),
    "observation (2, 1)": (part(0, np.ones((2, 1), np.float32)), "observation of shape (2, 1)"),
    "observation (0,)": (part(0, np.ones(0, np.float32)), "observation of shape (0,)"),
    "observation none": (part(0, None), "returned None as observation"),
    "observation dict": (part(0, {"a": 1}), "returned {'a': 1} as observation"),
    "observation objects": (part(0, np.array([1, 2], object)), "no real numbers"),
    "observation text": (part(0, np.array(["1", "2"])), "no real numbers"),
    "observation complex": (part(0, np.array([1j, 2])), "no real numbers"),
    "observation of two lengths": (part(0, [[1.0], [1.0, 2.0]]), "raised ValueError"),
    "observation nan": (part(0, np.array([0, np.nan])), "observation is nan"),
    "observation beyond float32": (part(0, np.array([0, -1e300])), "observation is -inf"),
    # errors that are no `Exception`
    "exits": (raises(SystemExit(0)), "raised SystemExit: 0 (bad_envs.py"),
    "exits silently": (raises(SystemExit), "raised SystemExit (bad_envs.py"),
    "aborts": (raises(Abort("enough")), "raised Abort: enough (bad_envs.py"),
    "stops the generator": (raises(GeneratorExit()), "raised GeneratorExit"),
    "memory": (raises(MemoryError()), "raised MemoryError"),
    "recursion": (raises(RecursionError("too deep")), "raised RecursionError: too deep"),
    "stop iteration": (raises(StopIteration()), "raised StopIteration"),
    "no message": (raises(Nameless()), "raised Nameless (bad_envs.py"),
    "lines": (raises(ValueError("one\ntwo\r\x1b[2K three")), "raised ValueError: one two"),
}
"""A function of the right answer of `step`, and words of the error."""

RESETS = {
    "no info": (lambda a: a[0], "returned array([0., 0.], dtype=float32) from reset, not observation, info"),
    "three things": (lambda a: (*a, 0), "returned 3 values from reset"),
    "nothing": (lambda a: None, "returned None from reset"),
    "info none": (part(1, None), "returned None as info"),
    "observation (1,)": (part(0, np.ones(1)), "observation of shape (1,)"),
    "observation none": (part(0, None), "returned None as observation"),
    "observation nan": (part(0, np.array([0, np.nan])), "observation is nan"),
    "exits": (raises(SystemExit(3)), "raised SystemExit: 3"),
    "raises": (raises(ZeroDivisionError()), "raised ZeroDivisionError"),
}
"""The same for `reset`."""


class Bad(gymnasium.Env):
    """Two numbers, the step among them. Misbehaves at `reset`, or at step `STEP`."""

    observation_space, action_space = BOX, spaces.Discrete(2)

    def __init__(self, step=None, reset=None, hang=None):
        slow = hangs_in_spite_of_handlers if hang == "stubborn" else hangs
        self.on_step = FAULTS[step][0] if step else slow if hang in ("step", "stubborn") else lambda answer: answer
        self.on_reset = RESETS[reset][0] if reset else slow if hang == "reset" else lambda answer: answer

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.h = 0
        return self.on_reset((np.zeros(2, np.float32), {}))

    def step(self, action):
        self.h += 1
        answer = (np.array([0, self.h], np.float32), 1.0, False, False, {})
        return self.on_step(answer) if self.h == STEP + 1 else answer


class Outside(gymnasium.Env):
    """Declares a space and returns something that is not in it at the second step."""

    action_space = spaces.Discrete(2)

    def __init__(self, kind="discrete"):
        self.observation_space, self.wrong = OUTSIDE[kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.wrong, 1.0, False, False, {}


PAIR = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0, 255, (2,), np.uint8)})
OUTSIDE = {
    "discrete": (spaces.Discrete(4), -1),
    "discrete text": (spaces.Discrete(4), "1"),
    "discrete vector": (spaces.Discrete(4), np.array([0, 1])),
    "multi discrete": (spaces.MultiDiscrete([2, 3]), np.array([2, 0])),
    "multi binary": (spaces.MultiBinary(3), np.array([0, 5, 1])),
    "dict without a key": (PAIR, {"a": 1}),
    "dict with another key": (PAIR, {"a": 1, "b": np.zeros(2, np.uint8), "c": 0}),
    "dict as a vector": (PAIR, np.zeros(5)),
    "box in a dict": (PAIR, {"a": 1, "b": np.zeros(1, np.uint8)}),
    "fractions in a dict": (PAIR, {"a": 1, "b": np.array([0.5, 0.5])}),
    "tuple": (spaces.Tuple([PAIR, PAIR]), (PAIR.sample(),)),
    "picture": (spaces.Box(0, 255, (2, 2, 1), np.uint8), np.zeros((2, 2), np.uint8)),
}


class Spoilt(gymnasium.Env):
    """Spaces and functions of the environment itself that cannot be used."""

    def __init__(self, kind="no observation"):
        self.observation_space, self.action_space = BOX, spaces.Discrete(2)
        if kind == "exits":
            raise SystemExit(5)
        if kind == "close":
            self.close = raises(ZeroDivisionError("close"))
        if kind in SPACES:
            setattr(self, *SPACES[kind])

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


def with_bounds(low, high):
    space = spaces.Box(-1, 1, (2,), np.float32)
    space.low, space.high = np.full(2, low, np.float32), np.full(2, high, np.float32)
    return space


SPACES = {
    "no observation": ("observation_space", spaces.Box(-1, 1, (0,))),
    "no observation space": ("observation_space", None),
    "empty dict": ("observation_space", spaces.Dict({})),
    "observation bounds": ("observation_space", with_bounds(np.nan, 1)),
    "no action": ("action_space", spaces.Box(-1, 1, (0,))),
    "no action of two axes": ("action_space", spaces.Box(-1, 1, (2, 0))),
    "action bounds nan": ("action_space", with_bounds(np.nan, 1)),
    "action bounds swapped": ("action_space", with_bounds(1, -1)),
    "no action space": ("action_space", None),
}


class Growing(gymnasium.Env):
    """Each copy has one dimension more than the one before."""

    made = 0

    def __init__(self):
        Growing.made += 1
        self.observation_space, self.action_space = spaces.Box(-1, 1, (Growing.made,)), spaces.Discrete(2)

    reset, step = Spoilt.reset, Spoilt.step


for kind in (Bad, Outside, Spoilt, Growing):
    gymnasium.register(f"{kind.__name__}-v0", entry_point=f"tests.bad_envs:{kind.__name__}", max_episode_steps=8)
