"""A combination lock whose state is seen through a random linear code and noise."""

import numpy as np
from gymnasium import spaces

from tests.tasks import HORIZONS
from tests.tasks.tabular import Observation, TabularTask

DIGITS = HORIZONS["NoisyLock-v0"]
ACTIONS = 6
FACES, JAMMED = 3, 3
"""The lock shows one of three faces, or it is jammed."""
SIZE = 20


class NoisyLock(TabularTask):
    """Enter twelve digits. The right one depends on the number of digits entered and on the face that the lock shows.

    After a right digit the lock shows a random face. A wrong digit jams it for the rest of the episode. The reward is 1 if
    the lock is not jammed after the last digit. With probability `slip` a random digit is entered.

    Latent state: 4 · (digits entered) + face. The observation (20,) is the one-hot face and the one-hot number of digits
    in a random orthonormal code, with normal noise. `instance` is the seed of combination and code.
    """

    def __init__(self, instance: int = 0, slip: float = 0.01, noise: float = 0.15):
        rng = np.random.default_rng([instance, 12])
        combination = rng.integers(ACTIONS, size=(DIGITS, FACES))
        basis, _ = np.linalg.qr(rng.normal(size=(SIZE, SIZE)))
        states = (DIGITS + 1) * (FACES + 1)
        entered, face = np.divmod(np.arange(states), FACES + 1)
        self.codes = (basis[face] + basis[FACES + 1 + entered]).astype(np.float32)
        self.noise = np.float32(noise)

        transitions = np.zeros((states, ACTIONS, states))
        expert = np.zeros(states, np.int64)
        for state in range(states):
            if entered[state] == DIGITS:
                transitions[state, :, state] = 1  # never left: the episode is over
                continue
            following = (FACES + 1) * (entered[state] + 1)
            transitions[state, :, following + JAMMED] = 1
            if face[state] != JAMMED:
                expert[state] = digit = combination[entered[state], face[state]]
                transitions[state, digit] = 0
                transitions[state, digit, following : following + FACES] = 1 / FACES
        transitions = (1 - slip) * transitions + slip * transitions.mean(1, keepdims=True)

        last = entered == DIGITS
        opened = last & (face != JAMMED)
        initial = ((entered == 0) & (face != JAMMED)) / FACES
        super().__init__(initial, transitions, opened.astype(float), last, opened, expert, skill=0.85)
        self.observation_space = spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)

    def observe(self) -> Observation:
        return self.codes[self.state] + self.noise * self.np_random.standard_normal(SIZE, np.float32)
