"""One episode of a run as a moving picture."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from PIL import Image

from hyrlo.envs import World
from hyrlo.envs.gym import GymWorld
from hyrlo.envs.gym_wrappers import describe
from hyrlo.errors import HyrloError
from hyrlo.files import atomic_file
from hyrlo.learned_reset import Actor
from hyrlo.policies import Policy
from hyrlo.training import load_run

DEFAULT_FILE = "episode.gif"
FPS = 30
"""Frames a second where the environment does not say."""


class Rendered(NamedTuple):
    """Where the picture is and what it shows: a frame for the initial state and one after each step."""

    file: Path
    frames: int
    episode_return: float


def render_run(path: str | Path, file: str | Path | None = None, seed: int = 0) -> Rendered:
    """Play one episode with the policy of a run, as it was saved, and write it as a GIF (`episode.gif` in the run)."""
    file = Path(path) / DEFAULT_FILE if file is None else Path(file)
    if file.suffix.lower() != ".gif":
        raise HyrloError(f"{file}: only GIF can be written; give a name that ends with .gif")
    world, policy, _ = load_run(path)
    try:
        env = _visible(world)
        frames, total = _play(env, policy, world.spec.horizon, seed)
        fps = env.metadata.get("render_fps") or FPS
        env.close()
    except HyrloError as error:
        raise HyrloError(f"{world.name}: {error}") from None
    except Exception as error:
        raise HyrloError(f"{world.name}: cannot be rendered: {describe(error)}") from error
    duration = max(20, round(1000 / fps))  # viewers take less than 20 ms for a mistake
    with atomic_file(file) as target:
        frames[0].save(target, format="GIF", save_all=True, append_images=frames[1:], duration=duration, loop=0)
    return Rendered(file, len(frames), total)


def _visible(world: World) -> gymnasium.Env:
    """The run's environment, made with the same arguments and able to show itself."""
    if isinstance(world, GymWorld):
        spec: Any = world.env.unwrapped.spec
        arguments: dict[str, Any] = {"max_episode_steps": world.horizon}
    elif world.name == "lock-adversarial":
        raise HyrloError("cannot be rendered: it has no Gymnasium environment; lock and lock-benign have")
    else:
        spec = "hyrlo/CombinationLock-v0"
        arguments = {"horizon": world.spec.horizon, **world.options}
    os.environ.setdefault(
        "SDL_VIDEODRIVER", "dummy"
    )  # pictures need no screen, and pygame complains where there is none
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it cannot render is an error below
        env = gymnasium.make(spec, render_mode="rgb_array", disable_env_checker=True, **arguments)
    if "rgb_array" not in (env.metadata.get("render_modes") or ()):
        raise HyrloError("cannot be rendered: the environment has no render mode rgb_array")
    return env


def _play(env: gymnasium.Env, policy: Policy, horizon: int, seed: int) -> tuple[list[Image.Image], float]:
    actor, total = Actor(policy, env), 0.0
    actor.begin(seed)
    observation, _ = env.reset(seed=seed)
    frames = [_frame(env)]
    for h in range(horizon):
        observation, reward, terminated, truncated, _ = env.step(actor(observation, h))
        total += float(reward)
        frames.append(_frame(env))
        if terminated or truncated:
            break
    return frames, total


def _frame(env: gymnasium.Env) -> Image.Image:
    """What the environment shows now, with a palette of its own: a third of the memory."""
    pixels: Any = env.render()
    if not isinstance(pixels, np.ndarray):
        raise HyrloError(f"cannot be rendered: render() gave {type(pixels).__name__}, not a picture")
    return Image.fromarray(pixels).quantize(dither=Image.Dither.NONE)
