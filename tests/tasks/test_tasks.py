"""The tasks keep Gymnasium's rules, their logs can be read, and their behaviour policies are neither useless nor optimal."""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

import hyrlo
from tests.tasks import HORIZONS
from tests.tasks.key_door import CARRYING, MAP, OPENED, SEARCHING, USE
from tests.tasks.logs import Act, behaviour, behaviour_return, play, uniform, write_logs
from tests.tasks.tabular import TabularTask

every_task = pytest.mark.parametrize("name", HORIZONS)


def make(name: str, **options: Any) -> Any:
    return gymnasium.make(f"tests.tasks:{name}", **options).unwrapped


class Plan(NamedTuple):
    """A policy on the latent MDP, by exact dynamic programming."""

    value: float
    actions: NDArray[np.int64]
    """Greedy actions (H, S)."""


def plan(task: TabularTask, horizon: int, policy: NDArray[np.float64] | None = None) -> Plan:
    """The optimal policy, or the value of a stationary `policy` of probabilities (S, A)."""
    values, actions = np.zeros(len(task.initial)), []
    for _ in range(horizon):
        q = task.transitions @ (task.rewards + ~task.terminal * values)
        values = q.max(1) if policy is None else (policy * q).sum(1)
        actions.append(q.argmax(1))
    return Plan(float(task.initial @ values), np.stack(actions[::-1]))


def behaviour_table(task: TabularTask) -> NDArray[np.float64]:
    states, actions = task.transitions.shape[:2]
    return task.skill * np.eye(actions)[task.expert] + (1 - task.skill) / actions * np.ones((states, actions))


def simulated(name: str, act: Act, episodes: int = 1500) -> tuple[float, float]:
    """Mean return and four standard errors."""
    totals = np.array([episode.total for episode in play(name, act, episodes, seed=5)])
    return totals.mean(), 4 * totals.std() / np.sqrt(episodes)


@every_task
@pytest.mark.filterwarnings("ignore:.*Box observation space m:UserWarning")  # noise has no bounds
def test_gymnasium_accepts_it(name):
    check_env(make(name), skip_render_check=True)


@every_task
def test_hyrlo_finds_it_by_name(name):
    world = hyrlo.make(f"gym:tests.tasks:{name}")
    assert world.horizon == HORIZONS[name]
    assert world.spec.actions == make(name).action_space.n


@every_task
def test_tables_are_probabilities(name):
    task = make(name)
    for table in (task.initial, task.transitions):
        assert (table >= 0).all()
        np.testing.assert_allclose(table.sum(-1), 1)


@every_task
def test_the_behaviour_is_better_than_uniform_and_below_the_optimum(name):
    task, horizon = make(name), HORIZONS[name]
    states, actions = task.transitions.shape[:2]
    low = plan(task, horizon, np.full((states, actions), 1 / actions)).value
    middle = plan(task, horizon, behaviour_table(task)).value
    high = plan(task, horizon).value
    assert low + 0.1 * (high - low) < middle < low + 0.7 * (high - low)


@every_task
def test_episodes_have_the_values_of_the_tables(name):
    """Not of uniform actions: their rewards are too rare for a standard error to mean anything."""
    task, horizon = make(name), HORIZONS[name]
    best = plan(task, horizon)
    cases = [
        (behaviour, plan(task, horizon, behaviour_table(task)).value),
        (lambda task, h, rng: int(best.actions[h, task.state]), best.value),
    ]
    for act, value in cases:
        mean, error = simulated(name, act)
        assert abs(mean - value) < error


@every_task
def test_logs_hold_the_states_of_the_behaviour(name, tmp_path):
    write_logs(name, tmp_path / "a.npz", episodes=50, seed=3)
    data = hyrlo.read_states(tmp_path / "a.npz")
    episodes = play(name, behaviour, 50, seed=3)
    assert data.horizon == HORIZONS[name]
    for h, states in enumerate(data.steps):
        running = [e.observations[h] for e in episodes if len(e.observations) > h]
        np.testing.assert_array_equal(states, running)
    assert behaviour_return(name, 50, seed=3) == np.mean([e.total for e in episodes])


@every_task
def test_the_same_seed_gives_the_same_bytes(name, tmp_path):
    for file, seed in (("a", 3), ("b", 3), ("c", 4)):
        write_logs(name, tmp_path / file, episodes=20, seed=seed)
    a, b, c = ((tmp_path / file).read_bytes() for file in "abc")
    assert a == b
    assert a != c


def test_layouts(tmp_path):
    """Trajectories if all episodes have H steps; otherwise the number of states falls with the step."""
    for name in HORIZONS:
        write_logs(name, tmp_path / name, episodes=200)
        with np.load(tmp_path / name) as arrays:
            if name == "KeyDoor-v0":
                assert (np.diff(np.bincount(arrays["timesteps"])) <= 0).all()
                assert set(arrays.files) == {"observations", "timesteps"}
            else:
                assert arrays["observations"].shape == (200, HORIZONS[name] + 1, *make(name).observation_space.shape)
                assert arrays.files == ["observations"]


@pytest.mark.parametrize("name", ["NoisyLock-v0", "DistractorChain-v0"])
def test_instances_differ(name):
    assert (make(name, instance=0).expert != make(name, instance=1).expert).any()
    assert (make(name, instance=1).expert == make(name, instance=1).expert).all()


def test_the_lock_opens_with_its_combination_and_jams_for_good():
    task = make("NoisyLock-v0", slip=0)
    for wrong_at, reward in ((None, 1.0), (0, 0.0), (11, 0.0)):
        task.reset(seed=0)
        for h in range(12):
            _, paid, terminated, _, info = task.step((task.expert[task.state] + (h == wrong_at)) % 6)
            assert paid == (reward if h == 11 else 0)
            assert terminated == (h == 11)
        assert info["success"] == bool(reward)


def test_the_lock_can_be_read_through_the_noise():
    """The nearest code is the latent state: an observation holds all that the optimal policy needs."""
    task = make("NoisyLock-v0")
    task.reset(seed=0)
    for _ in range(2000):
        task.state = int(task.np_random.integers(len(task.codes)))
        assert np.square(task.codes - task.observe()).sum(1).argmin() == task.state


def test_the_key_opens_the_door():
    task = make("KeyDoor-v0", slip=0)

    def after(x: int, y: int, stage: int, action: int) -> list[float]:
        task.state = 3 * (7 * y + x) + stage
        return task.step(action)[0].tolist()

    task.reset(seed=0)
    assert (MAP[4][0], MAP[2][3]) == ("K", "D")
    right = 1
    assert after(0, 4, SEARCHING, USE) == [0, 1, 1, 0]
    assert after(1, 4, SEARCHING, USE)[2:] == [0, 0]
    assert after(2, 2, SEARCHING, USE)[2:] == [0, 0]
    assert after(2, 2, CARRYING, USE)[2:] == [1, 1]
    assert after(2, 2, CARRYING, right)[0] == np.float32(2 / 6)
    assert after(2, 2, OPENED, right)[0] == np.float32(3 / 6)
    assert after(2, 1, OPENED, right)[0] == np.float32(2 / 6)  # a wall


def test_distractors_are_larger_than_the_signal_and_independent_of_actions():
    steps = np.stack([e.observations for e in play("DistractorChain-v0", behaviour, 300, seed=0)])
    signal, distractors = steps[..., :10], steps[..., 10:]
    assert distractors.std((0, 1)).min() > 4 * signal.std((0, 1)).max()
    others = np.stack([e.observations for e in play("DistractorChain-v0", uniform, 300, seed=0)])
    np.testing.assert_array_equal(others[..., 10:], distractors)
