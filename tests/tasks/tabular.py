"""A finite latent MDP behind an observation."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Observation = NDArray[np.float32]


class TabularTask(gymnasium.Env[Observation, np.int64]):
    """Plays the tables that a task gives to `__init__`. The agent sees `observe()`, never the latent state.

    `initial` (S,) and `transitions` (S, A, S) are probabilities. `rewards` (S,) are paid on arrival, `terminal` (S,) says
    where the episode ends, `success` (S,) what `info["success"]` is. `expert` (S,) are the actions of a good policy, which
    the behaviour policy takes with probability `skill`; otherwise it takes a uniform action.
    """

    def __init__(
        self,
        initial: NDArray[np.float64],
        transitions: NDArray[np.float64],
        rewards: NDArray[np.float64],
        terminal: NDArray[np.bool_],
        success: NDArray[np.bool_],
        expert: NDArray[np.int64],
        skill: float,
    ):
        self.initial, self.transitions, self.rewards = initial, transitions, rewards
        self.terminal, self.success, self.expert, self.skill = terminal, success, expert, skill
        self.action_space = spaces.Discrete(transitions.shape[1])
        self.state = 0
        self._first, self._next = _cumulative(initial), _cumulative(transitions)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict]:
        super().reset(seed=seed)
        self.state = self._draw(self._first)
        self.begin()
        return self.observe(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self.state = self._draw(self._next[self.state, action])
        info = {"success": bool(self.success[self.state])}
        return self.observe(), float(self.rewards[self.state]), bool(self.terminal[self.state]), False, info

    def begin(self) -> None:
        """Prepare what a task shows besides its latent state, at the start of an episode."""

    def observe(self) -> Observation:
        """What the agent sees of the current state."""
        raise NotImplementedError

    def behaviour(self, rng: np.random.Generator) -> int:
        """The action of the behaviour policy in the current latent state."""
        if rng.random() < self.skill:
            return int(self.expert[self.state])
        return int(rng.integers(self.transitions.shape[1]))

    def _draw(self, cumulative: NDArray[np.float64]) -> int:
        return int(cumulative.searchsorted(self.np_random.random(), side="right"))


def _cumulative(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    sums = probabilities.cumsum(-1)
    return sums / sums[..., -1:]  # the last is exactly 1, above every draw
