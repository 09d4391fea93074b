"""One episode as a GIF, or some of its steps side by side as a PNG."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from PIL import Image

from hyrlo.core.access import Spec
from hyrlo.core.errors import HyrloError
from hyrlo.core.files import atomic_file
from hyrlo.core.policies import Policy
from hyrlo.envs.gym.answers import describe
from hyrlo.envs.world import World
from hyrlo.runs.learned_reset import Actor
from hyrlo.runs.loading import load_run

DEFAULT_FILE = "episode.gif"
FPS = 30
"""Frames per second of environments that do not say theirs."""
MUJOCO_HELP = "MuJoCo draws with EGL (Debian: libegl1, libgl1-mesa-dri) or, with MUJOCO_GL=osmesa, OSMesa (libosmesa6)"


class Rendered(NamedTuple):
    """The file, the number of frames in it, and the return of the episode."""

    file: Path
    frames: int
    episode_return: float


def render_run(path: str | Path, file: str | Path | None = None, seed: int = 0, trust: bool = False) -> Rendered:
    """Play one episode with the policy of a run, as it was saved, and write it as a GIF (`episode.gif` in the run)."""
    world, policy, _ = load_run(path, trust=trust)
    return render_policy(world, policy, Path(path) / DEFAULT_FILE if file is None else file, seed)


def render_policy(world: World, policy: Policy, file: str | Path, seed: int = 0) -> Rendered:
    """Play one episode and write it as a GIF."""
    file = Path(file)
    if file.suffix.lower() != ".gif":
        raise HyrloError(f"{file}: only GIF can be written; give a name that ends with .gif")
    frames, total, fps = _film(world, policy, seed, range(world.spec.horizon + 1), palette=True)
    duration = max(20, round(1000 / fps))  # viewers ignore durations below 20 ms
    with atomic_file(file) as target:
        frames[0].save(target, format="GIF", save_all=True, append_images=frames[1:], duration=duration, loop=0)
    return Rendered(file, len(frames), total)


def render_strip(
    world: World, policy: Policy, file: str | Path, seed: int = 0, steps: Sequence[int] = (0, 10, 20, 30, 40, 50)
) -> Rendered:
    """States s_h of one episode, h in `steps`, side by side as a PNG; none of those after the episode's end."""
    file = Path(file)
    if file.suffix.lower() != ".png":
        raise HyrloError(f"{file}: only PNG can be written; give a name that ends with .png")
    if not steps or min(steps) < 0 or max(steps) > world.spec.horizon:
        raise HyrloError(f"{world.name}: steps are {tuple(steps)}; give some from 0 to {world.spec.horizon}")
    frames, total, _ = _film(world, policy, seed, steps, palette=False)
    if not frames:
        raise HyrloError(f"{world.name}: the episode ended before step {min(steps)}; give earlier steps")
    strip = Image.new("RGB", (sum(frame.width for frame in frames), frames[0].height))
    for i, frame in enumerate(frames):
        strip.paste(frame, (i * frame.width, 0))
    with atomic_file(file) as target:
        strip.save(target, format="PNG")
    return Rendered(file, len(frames), total)


def _film(
    world: World, policy: Policy, seed: int, steps: Collection[int], palette: bool
) -> tuple[list[Image.Image], float, float]:
    """Pictures of an episode's `steps`, its return, and frames a second."""
    try:
        with closing(_visible(world)) as env:
            if hasattr(env.unwrapped, "mujoco_renderer"):
                _try_drawing()
            frames, total = _play(env, policy, world.spec, seed, steps, palette)
        return frames, total, env.metadata.get("render_fps") or FPS
    except HyrloError as error:
        raise HyrloError(f"{world.name}: {error}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit of an environment included
        raise HyrloError(f"{world.name}: cannot be rendered: {describe(error)}") from error


def _try_drawing() -> None:
    """Try MuJoCo's renderer before Gymnasium does: a failure inside Gymnasium prints more errors at exit."""
    try:
        if backend := os.environ.get("MUJOCO_GL"):
            importlib.import_module(f"mujoco.{backend}").GLContext(8, 8).free()
    except Exception as error:
        raise HyrloError(f"cannot be rendered: {describe(error)}; {MUJOCO_HELP}") from error


def _visible(world: World) -> gymnasium.Env:
    """The world's environment with `render_mode="rgb_array"`."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # else it looks for a screen
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pictures need no screen, and pygame complains without one
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an environment that cannot render is an error below
        env = world.render_env()
    if "rgb_array" not in (env.metadata.get("render_modes") or ()):
        raise HyrloError("cannot be rendered: the environment has no render mode rgb_array")
    return env


def _play(
    env: gymnasium.Env, policy: Policy, spec: Spec, seed: int, steps: Collection[int], palette: bool
) -> tuple[list[Image.Image], float]:
    actor, total = Actor(policy, env, spec.observation_size), 0.0
    actor.begin(seed)
    observation, _ = env.reset(seed=seed)
    frames = [_frame(env, palette)] if 0 in steps else []
    for h in range(spec.horizon):
        observation, reward, terminated, truncated, _ = env.step(actor(observation, h))
        total += float(reward)
        if h + 1 in steps:
            frames.append(_frame(env, palette))
        if terminated or truncated:
            break
    return frames, total


def _frame(env: gymnasium.Env, palette: bool) -> Image.Image:
    """The current frame. With a palette, as in GIFs, it takes a third of the memory."""
    pixels: Any = env.render()
    if not isinstance(pixels, np.ndarray):
        raise HyrloError(f"cannot be rendered: render() gave {type(pixels).__name__}, not a picture")
    frame = Image.fromarray(pixels)
    return frame.quantize(dither=Image.Dither.NONE) if palette else frame
