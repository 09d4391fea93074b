"""FOOBAR without options learns from the logs of tasks that no setting was chosen on."""

import json

import pytest

from hyrlo.cli.main import main
from hyrlo.envs.registry import LOCK_ID
from tests.tasks import HORIZONS
from tests.tasks.logs import behaviour_return, write_logs

pytestmark = pytest.mark.learning


def train(tmp_path, env, logs, *options):
    command = ["train", "foobar", env, "--data", str(logs), "--out", str(tmp_path / "run"), "--quiet", *options]
    assert main(command) == 0
    return json.loads((tmp_path / "run" / "result.json").read_text())


@pytest.mark.parametrize("name", list(HORIZONS))
def test_it_is_better_than_the_behaviour(name, tmp_path):
    write_logs(name, tmp_path / "logs.npz", seed=3)
    result = train(tmp_path, f"gym:tests.tasks:{name}", tmp_path / "logs.npz", "--seed", "3")
    assert result["chosen"]["forward"]["choice"] == "latent"
    assert result["return_mean"] > 1.5 * behaviour_return(name, seed=3)  # it is more than twice as good
    assert result["warnings"] == []


def test_it_opens_the_lock_through_gymnasium_although_good_states_are_rare(tmp_path):
    """The HyQ authors' data: after a uniform action in the middle, two good states of about 0.03 each are left."""
    logs = tmp_path / "logs.npz"
    collect = ["data", "collect", "lock", "--lock.behaviour", "hyq", "--horizon", "6", "--episodes", "1500"]
    assert main([*collect, "--seed", "4", "--out", str(logs)]) == 0
    result = train(tmp_path, f"gym:{LOCK_ID}", logs, "--gym.kwargs", '{"horizon": 6}')
    assert result["success_rate"] >= 0.97
