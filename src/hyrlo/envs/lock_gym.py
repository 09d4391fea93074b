"""The combination lock for Gymnasium, single (`CombinationLock`) and vectorised (`VectorCombinationLock`), in NumPy.

The same combination, dynamics and observations as `hyrlo.envs.lock` for the same `horizon` and options; a test compares
the two. `info["success"]` says whether the lock was opened. The latent state is not part of `info`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from jaxtyping import Float, Int

from hyrlo.envs.lock import BAD, LATENTS, Lock, LockConfig


class _Dynamics:
    """Transitions and observations of a batch of locks."""

    def __init__(self, horizon: int, config: LockConfig):
        lock = Lock.create(horizon, config)
        self.horizon, self.config = horizon, config
        self.correct, self.hadamard = np.asarray(lock.correct), np.asarray(lock.hadamard)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (self.hadamard.shape[1],), np.float32)
        self.action_space = gymnasium.spaces.Discrete(config.actions)

    def observe(
        self, rng: np.random.Generator, latent: Int[np.ndarray, " n"], h: Int[np.ndarray, " n"]
    ) -> Float[np.ndarray, "n obs"]:
        clean = self.config.noise * rng.standard_normal((len(latent), len(self.hadamard)), np.float32)
        rows = np.arange(len(latent))
        clean[rows, latent] += 1
        clean[rows, LATENTS + h] += 1
        return (clean @ self.hadamard).astype(np.float32)

    def step(
        self,
        rng: np.random.Generator,
        latent: Int[np.ndarray, " n"],
        actions: Int[np.ndarray, " n"],
        h: Int[np.ndarray, " n"],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        coin = rng.integers(2, size=len(latent))
        good = latent != BAD
        right = good & (actions == self.correct[h, np.minimum(latent, 1)])
        opened = right & (h == self.horizon - 1)
        rewards = opened + self.config.anti_reward * (good & ~right & (coin == 1))
        return np.where(right, coin, BAD), rewards, opened


class CombinationLock(gymnasium.Env[np.ndarray, np.int64]):
    """One lock. Options are those of `hyrlo.envs.lock.LockConfig`; `seed` draws the combination, not the episodes."""

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, horizon: int = 100, render_mode: str | None = None, **options: Any):
        self.dynamics = _Dynamics(horizon, LockConfig(**options))
        self.observation_space = self.dynamics.observation_space
        self.action_space = self.dynamics.action_space
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.h = np.zeros(1, int)
        self.latent = self.np_random.integers(2, size=1)
        self.visited = [int(self.latent[0])]
        return self.dynamics.observe(self.np_random, self.latent, self.h)[0], {"success": False}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.latent, rewards, opened = self.dynamics.step(self.np_random, self.latent, np.array([action]), self.h)
        self.h = self.h + 1
        self.visited.append(int(self.latent[0]))
        observation = self.dynamics.observe(self.np_random, self.latent, self.h)[0]
        ended = bool(self.h[0] == self.dynamics.horizon)
        return observation, float(rewards[0]), ended, False, {"success": bool(opened[0])}

    def render(self) -> str | np.ndarray | None:
        """Three rows (good, good, bad), one column per step; the visited states are marked."""
        grid = np.zeros((LATENTS, self.dynamics.horizon + 1), int)
        grid[self.visited, np.arange(len(self.visited))] = 1
        if self.render_mode == "ansi":
            names = ("good 0", "good 1", "bad   ")
            rows = (f"{n} {''.join('●' if cell else '·' for cell in row)}" for n, row in zip(names, grid, strict=True))
            return f"step {int(self.h[0])} of {self.dynamics.horizon}\n" + "\n".join(rows) + "\n"
        if self.render_mode == "rgb_array":
            shades = np.array([[232, 240, 232], [232, 240, 232], [244, 228, 228]], np.uint8)
            marks = np.array([[38, 140, 70], [38, 140, 70], [190, 50, 50]], np.uint8)
            cells = np.where(grid[..., None] == 1, marks[:, None], shades[:, None]).astype(np.uint8)
            picture = np.kron(cells, np.ones((8, 8, 1), np.uint8))
            picture[::8], picture[:, ::8] = 255, 255
            return picture
        return None


class VectorCombinationLock(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """A NumPy batch of locks; an ended episode is reset at the next step."""

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int = 1, horizon: int = 100, render_mode: str | None = None, **options: Any):
        self.dynamics = _Dynamics(horizon, LockConfig(**options))
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_observation_space = self.dynamics.observation_space
        self.single_action_space = self.dynamics.action_space
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.h = np.zeros(self.num_envs, int)
        self.latent = self.np_random.integers(2, size=self.num_envs)
        return self.dynamics.observe(self.np_random, self.latent, self.h), {"success": np.zeros(self.num_envs, bool)}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        starting = self.h == self.dynamics.horizon  # ended on the last step: this one only resets
        played = np.where(starting, 0, self.h)
        latent, rewards, opened = self.dynamics.step(self.np_random, self.latent, np.asarray(actions), played)
        fresh = self.np_random.integers(2, size=self.num_envs)
        self.latent = np.where(starting, fresh, latent)
        self.h = np.where(starting, 0, self.h + 1)
        observations = self.dynamics.observe(self.np_random, self.latent, self.h)
        success = opened & ~starting
        ended = self.h == self.dynamics.horizon
        return observations, np.where(starting, 0.0, rewards), ended, np.zeros_like(ended), {"success": success}
