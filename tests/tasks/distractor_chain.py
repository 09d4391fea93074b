"""A chain whose position is seen next to larger numbers that mean nothing."""

import numpy as np
from gymnasium import spaces

from tests.tasks.tabular import Observation, TabularTask

LENGTH = 10
ACTIONS = 4
PERIOD = 7


class DistractorChain(TabularTask):
    """Walk from one end of a chain to the other and stay there: every step at the far end pays 1.

    At each position one of four actions goes forward, one goes back, and two do nothing. Which ones is random, by the seed
    `instance`. With probability `slip` nothing happens. The position is the latent state.

    The observation (16,) is the one-hot position with normal noise (10), then distractors that no action influences:
    noise (2), random walks (2), and a circular motion with a random start (2).
    """

    def __init__(self, instance: int = 0, slip: float = 0.1, noise: float = 0.1):
        rng = np.random.default_rng([instance, 34])
        meaning = np.stack([rng.permutation([1, -1, 0, 0]) for _ in range(LENGTH)])
        positions = np.arange(LENGTH)
        target = (positions[:, None] + meaning).clip(0, LENGTH - 1)
        transitions = (1 - slip) * np.eye(LENGTH)[target] + slip * np.eye(LENGTH)[:, None]
        end = positions == LENGTH - 1
        expert = meaning.argmax(1)
        first = (positions == 0).astype(float)
        never = np.zeros(LENGTH, bool)
        super().__init__(first, transitions, end.astype(float), never, end, expert, skill=0.6)
        self.observation_space = spaces.Box(-np.inf, np.inf, (LENGTH + 6,), np.float32)
        self.noise = noise

    def begin(self) -> None:
        self.walks = 2 * self.np_random.standard_normal(2)
        self.angle = self.np_random.uniform(0, 2 * np.pi)

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict]:
        self.walks += self.np_random.standard_normal(2)
        self.angle += 2 * np.pi / PERIOD
        return super().step(action)

    def observe(self) -> Observation:
        seen = np.empty(LENGTH + 6, np.float32)
        seen[: LENGTH + 2] = self.np_random.standard_normal(LENGTH + 2)
        seen[:LENGTH] *= self.noise
        seen[self.state] += 1
        seen[LENGTH : LENGTH + 2] *= 3
        seen[LENGTH + 2 : LENGTH + 4] = self.walks
        seen[LENGTH + 4 :] = 4 * np.cos(self.angle), 4 * np.sin(self.angle)
        return seen
