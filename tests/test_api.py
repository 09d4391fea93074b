"""What a notebook user would guess: arrays, environment objects, callbacks, progress, configs by name."""

import json

import gymnasium
import numpy as np
import pytest

import hyrlo
from hyrlo.backward.plan import PlanConfig
from hyrlo.backward.psdp import PsdpConfig
from hyrlo.backward.sac import LATENT, RollInSacConfig, SacConfig
from hyrlo.backward.variants import SuitedSacConfig
from hyrlo.core.serialize import policy_fingerprint
from hyrlo.forward.choose import MeasuredConfig
from hyrlo.forward.density import DensityConfig
from hyrlo.forward.importance import ImportanceConfig
from hyrlo.forward.model import ModelConfig, VectorModelConfig
from hyrlo.forward.regression import RegressionConfig
from tests.algorithms import contract

SMALL = contract.small(hyrlo.config("fail", preset="fast"))


def lock_states(horizon=3):
    return np.stack(hyrlo.make("lock", horizon=horizon).behaviour_data(seed=0, episodes=50).steps, axis=1)


def train(**options):
    return hyrlo.train("fail", hyrlo.make("lock", horizon=3), lock_states(), config=SMALL, eval_episodes=5, **options)


@pytest.mark.slow
def test_arrays_paths_and_data_sets_are_the_same_data(tmp_path):
    world, states = hyrlo.make("lock", horizon=3), lock_states()
    np.savez(tmp_path / "states.npz", observations=states)
    data_set = hyrlo.ObservationDataset.from_trajectories(states)
    runs = [
        hyrlo.train("fail", world, data, config=SMALL, eval_episodes=5)
        for data in (states, str(tmp_path / "states.npz"), tmp_path / "states.npz", data_set)
    ]
    assert len({policy_fingerprint(run.policy)["fingerprint"] for run in runs}) == 1


@pytest.mark.slow
def test_an_environment_object_is_a_world():
    env = gymnasium.make("CartPole-v1", max_episode_steps=5)
    states = np.random.default_rng(0).normal(size=(20, 6, 4)).astype(np.float32)
    config = contract.small(hyrlo.config("fail", forward="model"))
    trained = hyrlo.train("fail", env, states, config=config, curve_episodes=2, eval_episodes=2)
    assert (trained.result["env"], trained.result["horizon"]) == ("gym:CartPole-v1", 5)


@pytest.mark.slow
def test_callbacks_see_every_line_and_may_stop(tmp_path):
    seen = []
    trained = train(callbacks=[seen.append])
    assert seen == trained.metrics
    later = []
    with pytest.raises(hyrlo.HyrloError, match="a callback stopped training in phase forward, step 1"):
        train(out=tmp_path / "run", callbacks=[lambda line: line["horizon"] == 1, later.append])
    assert [line["horizon"] for line in later] == [0, 1]  # all are told, whoever stops
    resumed = train(out=tmp_path / "run", resume=True)
    assert [line["mmd"] for line in resumed.metrics] == [line["mmd"] for line in trained.metrics]


def test_progress_is_shown_if_asked_for(capsys):
    train()
    assert capsys.readouterr().err == ""
    train(progress=True)
    assert "forward 3/3" in capsys.readouterr().err


def test_presets_are_budgets_and_paper_is_the_paper_s_variant():
    assert isinstance(hyrlo.config("foobar").forward, MeasuredConfig)
    assert isinstance(hyrlo.config("foobar", preset="fast").forward, RegressionConfig)
    assert isinstance(hyrlo.config("foobar", preset="paper").forward, ImportanceConfig)
    assert hyrlo.config("foobar", preset="lean").backward.samples == 800
    assert isinstance(hyrlo.config("foobar", improve="sac").backward, SuitedSacConfig)
    assert isinstance(hyrlo.config("foobar", preset="fast", improve="sac").backward, SacConfig)
    assert hyrlo.config("foobar", forward="latent", improve="sac").backward == LATENT
    assert isinstance(hyrlo.config("foobar", forward="latent").backward, PlanConfig)
    assert isinstance(hyrlo.config("foobar", forward="regression").backward, PsdpConfig)
    cart, pendulum = hyrlo.make("gym:CartPole-v1"), hyrlo.make("gym:Pendulum-v1")
    assert type(hyrlo.config("foobar", world=cart).forward) is MeasuredConfig
    assert type(hyrlo.config("foobar", world=cart, forward="model").forward) is ModelConfig
    assert isinstance(hyrlo.config("foobar", world=cart, preset="paper").forward, ImportanceConfig)
    assert type(hyrlo.config("foobar", world=pendulum).forward) is VectorModelConfig
    assert isinstance(hyrlo.config("foobar", world=pendulum, forward="importance").forward, DensityConfig)
    assert hyrlo.config("foobar", world=pendulum).backward == RollInSacConfig()


def test_single_options_are_replaced_by_dotted_names():
    config = hyrlo.config("foobar", preset="fast", **{"forward.samples": 800, "backward.fit.restarts": 3})
    assert (config.forward.samples, config.backward.fit.restarts) == (800, 3)
    with pytest.raises(hyrlo.HyrloError, match=r"no option forward\.sampels; did you mean samples"):
        hyrlo.config("foobar", **{"forward.sampels": 800})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"algo": "foobar", "preset": "robot"}, "preset robot was removed in 0.2"),
        ({"algo": "foobar", "preset": "papr"}, "did you mean paper"),
        ({"algo": "sac", "preset": "paper"}, "sac has no preset paper; give fast"),
        ({"algo": "foobar", "preset": "lean", "forward": "model", "improve": "sac"}, "neither .* has preset lean"),
        ({"algo": "fail", "preset": "lean", "forward": "model"}, "--forward model has no preset lean; give fast"),
        ({"algo": "hyq", "forward": "model"}, "hyq has no such choice"),
        ({"algo": "fail", "forward": "modle"}, "'modle' is not possible here"),
    ],
)
def test_choices_that_do_not_exist_are_errors_of_one_line(options, said):
    with pytest.raises(hyrlo.HyrloError, match=said):
        hyrlo.config(**options)


@pytest.mark.slow
def test_a_run_directory_of_an_older_version_is_refused_by_name(tmp_path):
    train(out=tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["config"]["type"] == "RegressionConfig"
    del config["format"], config["checksum"]
    config["versions"]["hyrlo"] = "0.1.0"
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    for call in (lambda: hyrlo.load_run(tmp_path / "run"), lambda: train(out=tmp_path / "run", resume=True)):
        with pytest.raises(hyrlo.RunError, match=r"run: was made by hyrlo 0\.1\.0; hyrlo 0\.2"):
            call()
