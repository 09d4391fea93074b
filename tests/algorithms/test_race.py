"""The race in the end: who plays how much, and who wins."""

import jax
import pytest

from hyrlo.backward.race import race, race_episodes, rounds
from hyrlo.core.access import Ledger, Rollout
from hyrlo.core.policies import Policy
from hyrlo.runs.directory import MemoryRun

KEY = jax.random.key(0)


class Earns(Policy):
    mean: float

    def act(self, key, observations, h):
        raise NotImplementedError


class Paying:
    """Pays a policy its mean, with noise."""

    def __init__(self, noise):
        self.noise, self.ledger, self.keys = noise, Ledger(), []

    def rollout(self, key, policy, episodes, *, stop=None):
        self.ledger.book(episodes, 0)
        self.keys.append(jax.random.key_data(key).tolist())
        return Rollout(policy.mean + self.noise * jax.random.normal(key, (episodes,)), None)


def test_the_better_half_plays_twice_as_much():
    assert rounds(6, 16) == [(6, 16), (3, 32), (2, 64)]
    assert rounds(2, 10) == [(2, 10)]
    assert rounds(1, 10) == []
    assert race_episodes(6, 16) == 96 + 96 + 128


def run_race(means, episodes, noise=0.0):
    model, run = Paying(noise), MemoryRun()
    policies = {str(i): Earns(mean) for i, mean in enumerate(means)}
    winner = race(model, policies, episodes, KEY, run)
    return model, run.chosen["policy"]["choice"], winner.mean


def test_the_best_wins_and_every_episode_is_counted():
    model, name, mean = run_race([1.0, 5.0, 3.0, 4.0, 2.0], 8)
    assert (name, mean) == ("1", 5.0)
    assert model.ledger.episodes == race_episodes(5, 8)
    assert len({tuple(key) for key in model.keys}) == len(model.keys)  # nobody plays the same episodes twice
    assert run_race([2.0, 2.0, 1.0], 4)[1] == "0"  # of equal ones the first


@pytest.mark.parametrize("noise", [1.0, 3.0])
def test_noise_is_averaged_over_all_rounds(noise):
    """Five policies one apart: with 112 episodes of the last two, the standard error is below 0.3."""
    assert run_race([3.0, 1.0, 2.0, 4.0, 5.0], 16, noise)[2] >= 4.0
