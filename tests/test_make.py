"""`hyrlo.make`: by name, from a Gymnasium environment, from a function; and what suits a world when nobody chooses."""

import dataclasses
import json
import subprocess
import sys

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.wrappers import RescaleObservation, TransformReward

import hyrlo
from hyrlo.core.errors import HyrloError
from hyrlo.core.policies import Uniform
from hyrlo.envs import ENVIRONMENTS, Traits, World, make, registry, traits_of
from hyrlo.envs.gym.world import GymConfig
from hyrlo.envs.world import SIMULATED
from tests.gym_envs import OBSERVATIONS, Spaces, Walk

KEY = jax.random.key(0)
LOCK_ID = "hyrlo/CombinationLock-v0"


def message(action):
    with pytest.raises(HyrloError) as error:
        action()
    assert "\n" not in str(error.value)
    return str(error.value)


def returns(world, policy=None, episodes=5):
    return np.asarray(world.trace_model().rollout(KEY, policy or world.spec.uniform(), episodes).returns)


# Objects and functions


def test_an_environment_with_a_spec_is_copied():
    env = gymnasium.make("CartPole-v1", max_episode_steps=20, render_mode="rgb_array")
    world = make(env, num_envs=3)
    assert (world.name, world.spec.horizon, world.spec.actions) == ("gym:CartPole-v1", 20, 2)
    np.testing.assert_array_equal(returns(world), returns(make("gym:CartPole-v1", 20, num_envs=3)))
    assert world.env.unwrapped is not env.unwrapped
    assert world.env.unwrapped.render_mode is None  # copies draw nothing
    assert world.vector().count == 3


def test_copies_keep_arguments_and_wrappers():
    env = gymnasium.make("CartPole-v1", sutton_barto_reward=True, max_episode_steps=4)
    rescaled = RescaleObservation(gymnasium.make("MountainCar-v0"), np.float32(0), np.float32(1))
    assert set(returns(make(env)).tolist()) <= {0.0, -1.0}
    batch = make(rescaled, 5).trace_model().record(KEY, Uniform(3), 4, 0)
    assert float(batch.states[:, :2].min()) >= 0
    assert make(gymnasium.make(LOCK_ID, horizon=3)).spec.observation_size == 9
    unrecorded = type("Plain", (gymnasium.Wrapper,), {})(gymnasium.make("CartPole-v1"))
    line = message(lambda: make(unrecorded))
    assert line.startswith("gym:CartPole-v1: cannot be made")
    assert line.endswith("give a function without arguments that makes the environment")


def test_an_environment_without_a_spec_is_played_itself():
    env = Walk(ends=3)
    world = make(env, 5)
    assert (world.name, world.config.num_envs) == ("custom:Walk", 1)
    assert returns(world).tolist() == [6.0] * 5
    assert env.h == 3
    assert world.env.unwrapped is env
    assert "no copies" in message(lambda: make(env, 5, num_envs=2))
    assert "no copies" in message(lambda: make(env, 5, asynchronous=True))
    assert "give --horizon" in message(lambda: make(env))
    assert "horizon is 0" in message(lambda: make(env, 0))


def test_the_users_environment_stays_open():
    class Closing(Walk):
        closed = False

        def close(self):
            self.closed = True

    env = Closing()
    world = make(env, 3)
    returns(world)
    world.vector().close()
    assert not env.closed


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_function_makes_each_copy(asynchronous):
    world = make(lambda: Walk(ends=2), 4, num_envs=3, asynchronous=asynchronous)
    assert (world.name, world.vector().count) == ("custom:Walk", 3)
    assert returns(world).tolist() == [3.0] * 5
    world.vector().close()


def test_a_function_of_a_registered_environment_has_its_limit():
    world = make(lambda: TransformReward(gymnasium.make("CartPole-v1", max_episode_steps=7), lambda r: 2 * r))
    assert (world.name, world.spec.horizon) == ("gym:CartPole-v1", 7)
    assert returns(world).max() <= 14
    assert make(Walk, 3).name == "custom:Walk"  # a class without arguments is such a function


def test_observations_of_a_dict_space_are_flattened():
    for given in (lambda: Spaces("dict"), Spaces("dict")):
        world = make(given, 2)
        assert world.spec.observation_size == gymnasium.spaces.flatdim(OBSERVATIONS["dict"]) + 1
        assert np.isfinite(returns(world)).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, "make: got a int; give the name"),
        (None, "make: got a NoneType"),
        (lambda: 3, "the function made a int"),
        (lambda: 1 / 0, "the function raised ZeroDivisionError"),
        (lambda x: Walk(), "the function raised TypeError"),
        (lambda: Spaces("text"), "custom:Spaces: unsupported observation space"),
        (Spaces(actions="bits"), "custom:Spaces: unsupported action space"),
    ],
)
def test_what_is_no_environment_is_one_line(given, said):
    assert said in message(lambda: make(given, 3))


def test_vectors_and_options_that_do_not_fit_are_one_line():
    assert "got a CartPoleVectorEnv" in message(lambda: make(gymnasium.make_vec("CartPole-v1", 2)))
    assert "no option num_env; did you mean num_envs" in message(lambda: make(Walk(), 3, num_env=2))
    assert "kwargs are for environments by name" in message(lambda: make(Walk(), 3, kwargs={}))


@pytest.mark.parametrize("given", [gymnasium.make("CartPole-v1"), Walk()])
def test_a_run_of_an_object_is_not_loaded_without_the_world(given, tmp_path):
    world = make(given, 3)
    options = json.loads(json.dumps(world.options))
    line = message(lambda: make(world.name, 3, **options))
    assert line == f"{world.name}: was made from an environment object; pass the world"


# Traits


def test_worlds_say_what_suits_them():
    slow = {"curve_episodes": 20, "eval_episodes": 100}
    expected = {
        "lock": Traits(),
        "discounted": Traits(),
        "hard-tv": Traits(),
        "gym:CartPole-v1": Traits(**slow),
        f"gym:{LOCK_ID}": Traits(**slow),
    }
    for name, traits in expected.items():
        assert make(name).traits == traits_of(name) == traits
    assert traits_of("hammer-binary") == Traits(horizon_from_data=False, **slow)


def test_an_environment_class_says_its_traits():
    class Arm(Walk):
        hyrlo_traits = {"eval_episodes": 7}  # noqa: RUF012

    class Wrong(Walk):
        hyrlo_traits = {"speed": 3}  # noqa: RUF012

    assert make(Arm(), 3).traits == dataclasses.replace(SIMULATED, eval_episodes=7)
    assert "hyrlo_traits has 'speed'; the traits are curve_episodes" in message(lambda: make(Wrong(), 3).traits)


# The registry


def test_every_environment_has_a_world_and_its_own_options():
    assert registry.config_class("gym:CartPole-v1") is GymConfig
    assert registry.config_class("hard-tree") is None
    for environment in ENVIRONMENTS.values():
        assert issubclass(environment.world_class(), World)
        assert (environment.config is None) == (environment.option_prefix is None)
    with pytest.raises(HyrloError, match="did you mean lock"):
        registry.config_class("lok")


def test_the_registry_is_light():
    code = "import sys, hyrlo.envs.registry; print([m for m in ('jax', 'mujoco') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_importing_the_environments_registers_the_lock():
    code = f"import hyrlo.envs, gymnasium; print(gymnasium.make({LOCK_ID!r}, horizon=3).action_space.n)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "10\n"
    assert hyrlo.make(f"gym:hyrlo.envs:{LOCK_ID}", 3).spec.actions == 10
