"""The smallest locks that show learning: random search would need 10^H episodes."""

import dataclasses

import numpy as np
import pytest

import hyrlo

pytestmark = pytest.mark.learning


@pytest.fixture(scope="module")
def trained():
    return hyrlo.train("foobar", hyrlo.make("lock", horizon=6), seed=0, curve_episodes=1000)


def test_foobar_opens_the_lock_and_its_forward_policy_keeps_the_data_s_good_states(trained):
    assert trained.result["success_rate"] >= 0.97
    forward = [line["success_rate"] for line in trained.metrics if line["phase"] == "forward"]
    offline = (1 - 0.9 / 6) ** 6  # 0.38
    assert 0.4 * offline < forward[-1] < 1.4 * offline
    assert forward[0] < 0.01  # the rest of the forward policy is still uniform


def test_paper_preset_opens_the_lock():
    config = hyrlo.config("foobar", "paper")
    small = dataclasses.replace(config, backward=dataclasses.replace(config.backward, samples=2000))
    trained = hyrlo.train("foobar", hyrlo.make("lock", horizon=4), config=small, seed=1)
    assert trained.result["success_rate"] >= 0.97


def test_psdp_with_reset_opens_the_lock():
    trained = hyrlo.train("psdp", hyrlo.make("lock", horizon=6), seed=0)
    assert trained.result["success_rate"] >= 0.97


def test_psdp_trace_improves_on_the_roll_in_it_is_given():
    world = hyrlo.make("lock", horizon=6)
    roll_in = hyrlo.train("fail", world, seed=0)
    trained = hyrlo.train("psdp-trace", world, roll_in=roll_in.policy, seed=0)
    assert roll_in.result["success_rate"] < 0.6
    assert trained.result["success_rate"] >= 0.97


def test_curve_of_the_backward_phase_rises_to_the_final_policy(trained):
    backward = [line["success_rate"] for line in trained.metrics if line["phase"] == "backward"]
    assert np.all(np.diff(backward) > -0.05)
    assert abs(backward[-1] - trained.result["success_rate"]) < 0.05  # at h = 0 all of it is π^b
