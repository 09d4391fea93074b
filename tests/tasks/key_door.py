"""A slippery grid of two rooms: fetch the key, open the door, walk to the goal."""

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tests.tasks.tabular import Observation, TabularTask

MAP = (
    "S..#..G",
    ".S.#...",
    "...D...",
    "..S#...",
    "K..#...",
)
"""S: possible starts, K: the key, D: the door, G: the goal, #: wall."""
HEIGHT, WIDTH = len(MAP), len(MAP[0])
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""Actions 0 … 3: up, right, down, left, as (dx, dy)."""
USE = 4
SEARCHING, CARRYING, OPENED = range(3)
"""Stages: without the key, with it, and with the door open."""


class KeyDoor(TabularTask):
    """Pick up the key by `USE` on its cell, open the door by `USE` beside it, and walk to the goal.

    A move goes to one of its two sides with probability `slip`, and nowhere if a wall or the closed door is there. Every
    step costs 0.01. The goal pays 1 and ends the episode.

    Latent state: 3 · (cell, row by row) + stage. The observation (4,) is x and y, both scaled to [0, 1], and two flags:
    the key has been picked up, the door is open.
    """

    def __init__(self, slip: float = 0.15):
        states = HEIGHT * WIDTH * 3
        intended = np.array([[_result(state, action) for action in range(5)] for state in range(states)])
        transitions = np.zeros((states, 5, states))
        everywhere = np.arange(states)
        for move in range(4):
            transitions[everywhere, move, intended[:, move]] += 1 - slip
            for side in ((move + 1) % 4, (move - 1) % 4):
                transitions[everywhere, move, intended[:, side]] += slip / 2
        transitions[everywhere, USE, intended[:, USE]] = 1

        cells = np.array(list("".join(MAP))).repeat(3)
        stages = everywhere % 3
        goal = cells == "G"
        starts = (cells == "S") & (stages == SEARCHING)
        expert = _shortest_way(intended, goal)
        super().__init__(starts / starts.sum(), transitions, goal - 0.01, goal, goal, expert, skill=0.6)
        self.observation_space = spaces.Box(0, 1, (4,), np.float32)
        y, x = np.divmod(everywhere // 3, WIDTH)
        columns = (x / (WIDTH - 1), y / (HEIGHT - 1), stages >= CARRYING, stages == OPENED)
        self.observations = np.stack(columns, axis=1).astype(np.float32)

    def observe(self) -> Observation:
        return self.observations[self.state].copy()


def _result(state: int, action: int) -> int:
    """The next state if nothing slips."""
    cell, stage = divmod(state, 3)
    y, x = divmod(cell, WIDTH)
    if action == USE:
        beside_door = any(_at(x + dx, y + dy) == "D" for dx, dy in MOVES)
        if stage == SEARCHING and _at(x, y) == "K":
            stage = CARRYING
        elif stage == CARRYING and beside_door:
            stage = OPENED
        return 3 * cell + stage
    x, y = x + MOVES[action][0], y + MOVES[action][1]
    if _at(x, y) == "#" or (_at(x, y) == "D" and stage != OPENED):
        return state
    return 3 * (y * WIDTH + x) + stage


def _at(x: int, y: int) -> str:
    """The cell on the map; walls surround it."""
    return MAP[y][x] if 0 <= x < WIDTH and 0 <= y < HEIGHT else "#"


def _shortest_way(intended: NDArray[np.int64], goal: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The first action of a shortest way to the goal, from every state (S,), if nothing slips."""
    steps = np.where(goal, 0.0, np.inf)
    for _ in range(len(goal)):
        steps = np.minimum(steps, 1 + steps[intended].min(1))
    return steps[intended].argmin(1)
