"""Every algorithm of the registry passes these."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyrlo
from hyrlo.runs.algorithms import ALGORITHMS
from hyrlo.runs.directory import MemoryRun, RunDirectory
from tests.algorithms import contract

pytestmark = pytest.mark.slow
every_algorithm = pytest.mark.parametrize("algo", sorted(contract.VARIANTS))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One uninterrupted run of each algorithm, made when it is first asked for."""
    base = tmp_path_factory.mktemp("runs")

    class Finished(dict):
        def __missing__(self, algo):
            self[algo] = base / algo, contract.train(algo, base / algo)
            return self[algo]

    return Finished()


def policy_bytes(path):
    return (path / "policy.safetensors").read_bytes(), (path / "policy.json").read_bytes()


@every_algorithm
def test_same_seed_same_bytes(algo, finished, tmp_path):
    contract.train(algo, tmp_path / "again")
    assert policy_bytes(tmp_path / "again") == policy_bytes(finished[algo][0])


@every_algorithm
def test_another_seed_gives_another_policy(algo, finished, tmp_path):
    contract.train(algo, tmp_path / "other", seed=4)
    assert policy_bytes(tmp_path / "other")[0] != policy_bytes(finished[algo][0])[0]


@pytest.mark.parametrize("algo", sorted(contract.EXPECTED))
def test_ledger_equals_the_expected_counts(algo, finished):
    result = finished[algo][1].result
    assert (result["episodes"], result["steps"]) == contract.EXPECTED[algo]


def test_the_result_says_where_episodes_went(finished):
    result = finished["foobar"][1].result
    counts = {"choose": contract.CHOOSE, "forward": 3 * contract.FORWARD, "plan": contract.CHECK}
    assert result["spent"] == {**counts, "compare": 2 * contract.CHECK}  # the plan, and the roll-in
    assert set(contract.VARIANTS) - set(contract.EXPECTED) == {"foobar-replan"}
    replanned = finished["foobar-replan"][1].result
    assert sum(replanned["spent"].values()) == replanned["episodes"]
    assert replanned["spent"]["plan"] == 3 * 2 * contract.CHECK  # every round, a check and more of the worst step


@every_algorithm
def test_policy_survives_saving_and_loading(algo, finished):
    path, trained = finished[algo]
    loaded = hyrlo.load_policy(path)
    assert hyrlo.load_run(path)[2]["algo"] == trained.result["algo"]  # the policy fits the run's own environment
    states = jnp.asarray(contract.world(algo).behaviour_data(seed=9, episodes=30).at(1))
    for h in range(contract.HORIZON):
        key = jax.random.key(h)
        np.testing.assert_array_equal(loaded.act(key, states, h), trained.policy.act(key, states, h))


class Stopped(Exception):
    pass


def train_and_stop(algo, path, stop_after, whole, monkeypatch):
    """Stop right after a checkpoint, if the run does not end before."""
    keep = RunDirectory.keep

    def keep_and_stop(self, phase):
        keep(self, phase)
        if len(self.metrics) == stop_after:
            raise Stopped

    monkeypatch.setattr(RunDirectory, "keep", keep_and_stop)
    if stop_after < len(whole.metrics):
        with pytest.raises(Stopped):
            contract.train(algo, path)
    monkeypatch.setattr(RunDirectory, "keep", keep)


@every_algorithm
@pytest.mark.parametrize("stop_after", [1, 2, 4])
def test_resumes_to_the_same_bytes(algo, stop_after, finished, tmp_path, monkeypatch):
    path, whole = finished[algo]  # made before a run is stopped
    train_and_stop(algo, tmp_path / "run", stop_after, whole, monkeypatch)
    resumed = contract.train(algo, tmp_path / "run", resume=True)
    assert policy_bytes(tmp_path / "run") == policy_bytes(path)
    untimed = [{k: v for k, v in line.items() if k != "seconds"} for line in resumed.metrics]
    assert untimed == [{k: v for k, v in line.items() if k != "seconds"} for line in whole.metrics]
    assert resumed.result["episodes"] == whole.result["episodes"]


@every_algorithm
@pytest.mark.parametrize("stop_after", [2, 3])
def test_resumes_to_the_same_bytes_without_the_newest_checkpoint(algo, stop_after, finished, tmp_path, monkeypatch):
    path, whole = finished[algo]
    if stop_after >= len(whole.metrics):
        pytest.skip("it ends before")
    train_and_stop(algo, tmp_path / "run", stop_after, whole, monkeypatch)
    newest = tmp_path / "run" / "checkpoint" / f"{whole.metrics[stop_after - 1]['phase']}.safetensors"
    damaged = bytearray(newest.read_bytes())
    damaged[stop_after * len(damaged) // 4] ^= 1
    newest.write_bytes(damaged)
    resumed = contract.train(algo, tmp_path / "run", resume=True)
    assert newest.name in resumed.result["warnings"][0]["what"]
    assert policy_bytes(tmp_path / "run") == policy_bytes(path)
    assert resumed.result["episodes"] == whole.result["episodes"]


@every_algorithm
def test_metrics_tell_phase_step_counts_and_success(algo, finished):
    for line in finished[algo][1].metrics:
        assert {"phase", "horizon", "episodes", "steps", "return_mean", "success_rate", "seconds"} <= set(line)
    steps = [line["horizon"] for line in finished[algo][1].metrics if line["phase"] == "backward"]
    assert steps == sorted(steps, reverse=True)


def test_a_reset_algorithm_refuses_a_trace_model():
    world = contract.world()
    config = contract.small(hyrlo.config("psdp"))
    data = world.behaviour_data(episodes=10)
    with pytest.raises(hyrlo.AccessError, match="needs a reset model"):
        ALGORITHMS["psdp"].train(world.trace_model(), data, config, jax.random.key(0), MemoryRun())


def test_trace_algorithms_cannot_reset():
    assert not hasattr(contract.world().trace_model(), "rollout_from")
