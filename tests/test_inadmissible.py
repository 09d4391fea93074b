"""The inadmissible locks: their data against the exact occupancy, the adversarial dynamics against their definition."""

import re
import shlex
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyrlo.cli.train
from hyrlo.cli.main import main
from hyrlo.core.access import evaluate
from hyrlo.core.errors import HyrloError
from hyrlo.core.jax_model import JaxResetModel
from hyrlo.core.policies import switch
from hyrlo.data.states import ObservationDataset
from hyrlo.diagnostics.verdict import EXPLORING
from hyrlo.envs import ENVIRONMENTS, make
from hyrlo.envs.lock import (
    BAD,
    Lock,
    LockConfig,
    behaviour_occupancy,
    inadmissible_occupancy,
    latent_occupancy,
    optimal_success,
    optimal_value,
)
from hyrlo.experiments.reproduce import find
from hyrlo.theory.finite import FiniteMDP
from tests.locks import KEY, Shifted, binomial_error

NAMES = ["lock-benign", "lock-adversarial"]
A = 3
ADVERSARIAL = Lock.create(4, LockConfig(actions=A), adversarial=True)
OPTIMAL = Shifted(ADVERSARIAL, jnp.asarray(0))
WRONG = Shifted(ADVERSARIAL, jnp.asarray(1))


def exact_model(lock: Lock) -> FiniteMDP:
    """The lock as tables, written from its definition: good, good, bad."""
    actions, anti = lock.config.actions, lock.config.anti_reward
    transitions = np.zeros((lock.horizon, 3, actions, 3))
    rewards = np.zeros((lock.horizon, 3, actions))
    for h in range(lock.horizon):
        transitions[h, :, :, BAD] = 1
        for state in (0, 1):
            if lock.adversarial and (h, state) == (1, 1):
                continue
            right = int(lock.correct[h, state])
            rewards[h, state] = anti / 2
            rewards[h, state, right] = h == lock.horizon - 1
            transitions[h, state, right] = 0.5, 0.5, 0
            if lock.adversarial and h == 0:
                transitions[h, state] = 0, 0.05, 0.95
                transitions[h, state, right] = 0.1, 0.9, 0
    return FiniteMDP.dense(np.array([0.5, 0.5, 0.0]), transitions, rewards)


step = eqx.filter_jit(lambda lock, key, latent, actions, h: lock.step(key, latent, actions, h))


# Data


def test_the_exact_occupancy_is_the_papers():
    expected = [[0.5, 0.5, 0.0], [0.1, 0.05, 0.85], [0.1, 0.1, 0.8], [0.15, 0.15, 0.7], [0.2, 0.2, 0.6]]
    for lock in (Lock.create(4), ADVERSARIAL):
        np.testing.assert_allclose(inadmissible_occupancy(lock), expected)
    longest = inadmissible_occupancy(Lock.create(10))
    np.testing.assert_allclose(longest.sum(axis=1), 1)
    np.testing.assert_allclose(longest[10], [0.5, 0.5, 0], atol=1e-12)
    assert longest.min() >= 0
    good = longest[:, :2].sum(axis=1)
    assert (np.diff(good[1:]) > 0).all()  # which no policy can bring about


@pytest.mark.parametrize("name", NAMES)
def test_data_have_the_exact_occupancy_and_no_trajectories(name):
    n = 10_000
    world = make(name)
    data = world.behaviour_data(seed=3, episodes=n)
    assert isinstance(data, ObservationDataset)
    assert data.horizon == world.spec.horizon == 10
    exact = inadmissible_occupancy(world.env)
    decode = eqx.filter_jit(world.env.decode)
    latents = np.stack([np.asarray(decode(states)) for states in data.steps])
    for h in range(11):
        share = np.bincount(latents[h], minlength=3) / n
        for state in range(3):
            assert abs(share[state] - exact[h, state]) <= binomial_error(exact[h, state], n)
        time = np.asarray(data.at(h)) @ np.asarray(world.env.hadamard).T
        assert (time[:, 3:].argmax(axis=1) == h).all()
    between = np.corrcoef(latents == 0) - np.eye(11)  # rows of different steps have nothing to do with each other
    assert np.abs(between).max() < 5 / n**0.5


def test_data_repeat_with_their_seed():
    world = make("lock-benign", horizon=3)
    one, again, other = (world.behaviour_data(seed, episodes=50).fingerprint() for seed in (0, 0, 1))
    assert one == again != other
    assert make("lock-adversarial", horizon=3).behaviour_data(0, 50).fingerprint() == one


# What is refused


@pytest.mark.parametrize("name", NAMES)
def test_what_the_inadmissible_locks_do_not_have(name):
    with pytest.raises(HyrloError, match=r"horizon is 11; .* 10 or less"):
        make(name, horizon=11)
    world = make(name, horizon=2)
    with pytest.raises(HyrloError, match=f"{name}: epsilon is 0.5, but no policy made its data"):
        world.behaviour_data(epsilon=0.5)
    with pytest.raises(HyrloError, match=f"{name}: .* no policy made them, so there are no actions"):
        world.behaviour_transitions()


def test_short_adversarial_locks_and_wrong_names():
    with pytest.raises(HyrloError, match=r"lock-adversarial: horizon is 1; .* at least 2"):
        make("lock-adversarial", horizon=1)
    assert make("lock-benign", horizon=1).behaviour_data(episodes=5).horizon == 1
    with pytest.raises(HyrloError, match="did you mean lock-benign"):
        make("lock-bening")
    with pytest.raises(HyrloError, match="standard lock"):
        behaviour_occupancy(ADVERSARIAL, 0.1)


def test_every_environment_has_a_line_and_a_horizon():
    own = {"discounted", "gym:<id>"}  # these know their horizon themselves
    assert set(ENVIRONMENTS) == {"lock", *NAMES, "hard-tree", "hard-tv", "hammer-binary", *own}
    assert {name for name, e in ENVIRONMENTS.items() if e.horizon is None} == own
    assert make("lock").spec.horizon == 100
    assert [make(name).env.adversarial for name in ("lock", *NAMES)] == [False, False, True]


def test_the_command_line_collects_them(tmp_path, capsys):
    path = tmp_path / "states.npz"
    assert main(["data", "collect", "lock-adversarial", "--episodes", "20", "--out", str(path)]) == 0
    with np.load(path) as archive:
        assert archive["observations"].shape == (20, 11, 16)
    path.unlink()
    capsys.readouterr()
    for flags in (["--transitions"], ["--epsilon", "0.1"], ["--horizon", "12"]):
        assert main(["data", "collect", "lock-benign", "--out", str(path), *flags]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert error.count("\n") == 1
    assert not path.exists()


# Dynamics


@pytest.mark.parametrize("lock", [ADVERSARIAL, Lock.create(4, LockConfig(actions=A))], ids=["adversarial", "standard"])
def test_every_transition_and_reward_is_as_defined(lock):
    """All states and actions of every step, h = 0 and h = 1 of the adversarial lock among them."""
    n = 10_000
    model = exact_model(lock)
    pairs = [(state, action) for state in range(3) for action in range(A)]
    latent, actions = (jnp.asarray(np.repeat(column, n)) for column in zip(*pairs, strict=True))
    for h in range(lock.horizon):
        following, rewards, opened = step(lock, jax.random.fold_in(KEY, h), latent, actions, jnp.asarray(h))
        table = zip(pairs, *(np.asarray(x).reshape(-1, n) for x in (following, rewards, opened)), strict=True)
        for (state, action), to, paid, success in table:
            share = np.bincount(to, minlength=3) / n
            for there, p in enumerate(np.asarray(model.transitions[h, state, action], float)):
                assert abs(share[there] - p) <= binomial_error(p, n) + 1e-7, (h, state, action, there)
            mean = float(model.rewards[h, state, action])
            assert success.all() == success.any() == (mean == 1)
            possible = {0.05: {0.0, np.float32(0.1)}, 0.0: {0.0}, 1.0: {1.0}}[round(mean, 6)]
            assert set(paid.tolist()) == {float(x) for x in possible}, (h, state, action)
            assert abs(paid.mean() - mean) <= 0.1 * binomial_error(0.5, n)


def test_the_anti_reward_says_nothing_about_where_the_first_action_led():
    n = 50_000
    wrong = (ADVERSARIAL.correct[0, 0] + 1) % A
    following, rewards, _ = step(ADVERSARIAL, KEY, jnp.zeros(n, int), jnp.full(n, wrong), jnp.asarray(0))
    slipped, paid = np.asarray(following) == 1, np.asarray(rewards) > 0
    assert abs(paid[slipped].mean() - 0.5) < binomial_error(0.5, int(slipped.sum()))


@pytest.mark.parametrize("h", range(3))
def test_the_standard_lock_uses_its_key_as_ever(h):
    """One coin from the key itself: runs and data of older versions stay the same, bit for bit."""
    lock = Lock.create(3)
    latent, actions = jnp.asarray(np.arange(600) % 3), jnp.asarray(np.arange(600) % 10)
    coin = np.asarray(jax.random.bernoulli(KEY, shape=latent.shape))
    good = np.asarray(latent) != BAD
    right = good & (np.asarray(actions) == np.asarray(lock.correct)[h, np.minimum(latent, 1)])
    following, rewards, opened = step(lock, KEY, latent, actions, jnp.asarray(h))
    np.testing.assert_array_equal(following, np.where(right, coin, BAD))
    np.testing.assert_array_equal(opened, right & (h == 2))
    np.testing.assert_array_equal(rewards, (right & (h == 2)) + np.float32(0.1) * (good & ~right & coin))


def test_optimal_play_opens_one_adversarial_lock_in_ten():
    n = 20_000
    model = JaxResetModel(ADVERSARIAL)
    found = evaluate(model, OPTIMAL, KEY, n)
    assert found.success_rate is not None
    assert abs(found.success_rate - optimal_success(ADVERSARIAL)) < binomial_error(0.1, n)
    assert found.return_mean == pytest.approx(found.success_rate)
    assert abs(found.return_mean - optimal_value(ADVERSARIAL)) < binomial_error(0.1, n)
    assert optimal_success(ADVERSARIAL) == 0.1
    assert optimal_success(Lock.create(4)) == 1.0
    fallen = evaluate(model, switch(WRONG, at=1, to=OPTIMAL), KEY, n)  # state 1 of h = 1 is no way back
    assert fallen.success_rate == 0
    assert abs(fallen.return_mean - 0.05) < 0.1 * binomial_error(0.5, n)


def test_a_reset_to_step_one_opens_from_state_zero_only():
    latent = jnp.asarray(np.arange(300) % 3)
    observations = eqx.filter_jit(ADVERSARIAL.observe)(KEY, latent, jnp.asarray(1))
    batch = JaxResetModel(ADVERSARIAL).rollout_from(KEY, observations, OPTIMAL, at=1)
    np.testing.assert_array_equal(batch.success, latent == 0)
    np.testing.assert_array_equal(batch.returns, (latent == 0).astype(float))
    assert latent_occupancy(ADVERSARIAL, observations)[0] == pytest.approx(1 / 3)


@pytest.mark.parametrize("adversarial", [False, True])
@pytest.mark.parametrize("horizon", [2, 3, 5])
@pytest.mark.parametrize("anti_reward", [-1.0, 0.0, 0.1, 0.19, 0.21, 1.9, 2.1, 50.0])
def test_the_optimal_value_is_that_of_dynamic_programming(adversarial, horizon, anti_reward):
    lock = Lock.create(horizon, LockConfig(actions=A, anti_reward=anti_reward), adversarial=adversarial)
    values = exact_model(lock).optimal_q()[0].max(axis=1)
    assert optimal_value(lock) == pytest.approx(float(values[:2].mean()), rel=1e-5)


@pytest.mark.parametrize("horizon", [2, 3, 5])
def test_the_optimal_success_is_that_of_dynamic_programming(horizon):
    """With no anti-reward the return is the success."""
    for adversarial in (False, True):
        lock = Lock.create(horizon, LockConfig(actions=A, anti_reward=0.0), adversarial=adversarial)
        assert optimal_success(lock) == pytest.approx(float(exact_model(lock).optimal_q()[0].max(axis=1)[0]))


# The exploring roll-in


class Asked(Exception):
    """Raised in place of training."""


@pytest.mark.parametrize("source", ["foobar.md", "diagnose"])
def test_the_exploring_command_is_the_experiments(source, monkeypatch):
    """The command of the docs, and the one that diagnose prints, train what the table was measured with."""
    asked = {}

    def train(algo, world, data, *, config, **_):
        asked.update(algo=algo, horizon=world.spec.horizon, config=config)
        raise Asked

    monkeypatch.setattr(hyrlo.cli.train, "train", train)
    command = f"train foobar lock-adversarial --horizon 10 {EXPLORING}"
    if source == "foobar.md":
        page = (Path(__file__).parents[1] / "docs" / source).read_text()
        (command,) = re.findall(r"^hyrlo (train foobar lock-adversarial .*--explore .*)$", page, re.M)
    with pytest.raises(Asked):
        main(shlex.split(command))
    (spec,) = [s for s in find("inadmissible").runs("paper", [0]) if s.group == "exploring-lock-adversarial"]
    assert asked == {"algo": spec.algo, "horizon": spec.horizon, "config": spec.config}
