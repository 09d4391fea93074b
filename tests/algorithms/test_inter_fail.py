"""Inter-FAIL's oracles against brute force, what it learns against exact occupancies, and its bound."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyrlo
from hyrlo.core.errors import AccessError, HyrloError
from hyrlo.experiments.stationary import StationaryTask, chain_row, distance_to_ball, forward_row, learn
from hyrlo.runs.directory import Run
from hyrlo.theory.inter_fail import InterFailConfig, inter_fail, new_game, play_round
from tests.batches import recorded

S, A, N = 4, 3, 60


def samples(seed, n=N):
    rng = np.random.default_rng(seed)
    states, following, offline = (rng.integers(S, size=n) for _ in range(3))
    actions = rng.integers(A, size=n)
    one_hot = lambda x: jnp.eye(S)[x]  # noqa: E731
    batch = recorded(one_hot(states), jnp.asarray(actions), one_hot(following))
    return (states, actions, following, offline), batch, one_hot(offline)


def payoff(policy, witness, drawn):
    """u(π, g), sample by sample."""
    states, actions, following, offline = drawn
    on = np.mean([A * policy[s, a] * witness[t] for s, a, t in zip(states, actions, following, strict=True)])
    return on - witness[offline].mean()


@pytest.mark.parametrize("kind", ["mmd", "all", "finite"])
def test_both_oracles_are_optimal(kind):
    config = InterFailConfig(iterations=50, discriminators=kind, eta=0.3)
    rng = np.random.default_rng(0)
    functions = rng.uniform(-1, 1, size=(7, S))
    first, batch, offline = samples(1)
    given = jnp.asarray(functions, jnp.float32) if kind == "finite" else None
    game, u = play_round(new_game(S, A), batch, offline, given, jnp.asarray(0), config)
    witness = np.asarray(game.witnesses)  # of one round
    uniform = np.full((S, A), 1 / A)
    assert float(u) == pytest.approx(payoff(uniform, witness, first), abs=1e-5)
    rivals = {
        "mmd": [g / np.linalg.norm(g) for g in rng.normal(size=(50, S))],
        "all": rng.uniform(-1, 1, size=(50, S)),
        "finite": [*functions, *-functions],
    }[kind]
    assert all(payoff(uniform, g, first) <= float(u) + 1e-6 for g in rivals)
    if kind == "finite":
        assert min(np.abs(witness - g).max() for g in rivals) < 1e-6

    second, batch, offline = samples(2)
    game, _ = play_round(game, batch, offline, given, jnp.asarray(1), config)
    everything = tuple(np.concatenate(pair) for pair in zip(first, second, strict=True))
    seen = np.bincount(everything[0], minlength=S) / len(everything[0])

    def objective(policy):  # Σ_τ u(π, g^τ) + φ(π), on all samples
        entropy = seen @ np.sum(policy * np.log(policy), axis=1)
        return payoff(policy, np.asarray(game.witnesses), everything) + entropy / config.eta

    learned = np.asarray(jax.nn.softmax(game.logits), float)
    assert np.abs(learned - 1 / A).max() > 0.02
    for other in rng.dirichlet(np.ones(A), size=(50, S)):
        assert objective(learned) <= objective(0.9 * learned + 0.1 * other) + 1e-9


def test_the_policy_with_the_least_u_is_returned():
    config = InterFailConfig(iterations=4, discriminators="all", eta=2.0, burn_in=0.0)
    game, seen = new_game(S, A), []
    for t in range(4):
        _, batch, offline = samples(t)
        played, u = play_round(game, batch, offline, None, jnp.asarray(t), config)
        seen.append((float(u), np.asarray(game.logits)))
        game = played
    least = min(range(4), key=lambda t: seen[t][0])
    np.testing.assert_array_equal(game.best, seen[least][1])
    assert (int(game.best_iteration), float(game.least)) == (least, pytest.approx(seen[least][0]))


def test_one_sample_that_agrees_wins_by_chance_unless_early_policies_are_left_out():
    """As the pseudocode is, u^1 = 0 if both first next states are the same, and the uniform policy is returned."""
    one = recorded(jnp.eye(S)[:1], jnp.array([0]), jnp.eye(S)[1:2])
    for burn_in, returned in ((0.0, 0), (0.5, 1)):
        config = InterFailConfig(iterations=2, burn_in=burn_in, eta=2.0)
        game, u = play_round(new_game(S, A), one, jnp.eye(S)[1:2], None, jnp.asarray(0), config)
        assert float(u) == pytest.approx(0, abs=1e-6)
        _, batch, offline = samples(3)
        game, u = play_round(game, batch, offline, None, jnp.asarray(1), config)
        assert float(u) > 0.01
        assert int(game.best_iteration) == returned


@pytest.mark.parametrize("number", [0, 1, 2])  # one of each class of discriminators
def test_the_learned_policy_matches_the_states_within_the_bound(number):
    task = StationaryTask.random(number)
    learned = learn(task, InterFailConfig(iterations=150, samples=50, points=1))
    row = forward_row(task, learned)
    uniform = forward_row(task, np.full(learned.shape, 1 / 3))
    assert row["ipm"] < 0.7 * uniform["ipm"]
    assert row["ipm"] <= row["bound_twice"]
    assert row["one_step"] < 0.7 * uniform["one_step"]
    perfect = forward_row(task, task.behaviour)
    assert perfect["ipm"] == perfect["one_step"] == 0


def test_the_paper_s_bound_fails_on_two_chains_and_the_corrected_one_holds():
    row = chain_row(0.9, length=100)
    assert row["one_step"] == 0
    assert row["bellman_error"] == pytest.approx(0.01)
    assert row["ipm"] > 1.4 * row["bound"]
    assert row["ipm"] == pytest.approx(2 * 0.01 * 0.81 / 0.1, rel=1e-3)
    assert 0.8 * row["bound_twice"] < row["ipm"] <= row["bound_twice"]
    assert (inside := chain_row(0.5, length=100))["ipm"] < inside["bound"]


def test_distance_to_the_ball():
    assert distance_to_ball(np.array([0.6, 0.7])) == 0
    assert distance_to_ball(np.array([3.0, 0.0])) == pytest.approx(2)
    far = np.array([1.0, 1.0, 1.0, 1.0])  # nearest is (1/2, 1/2, 1/2, 1/2)
    assert distance_to_ball(far) == pytest.approx(0.5)


def test_episodes_and_queries_are_counted():
    world = hyrlo.make("discounted", states=4, gamma=0.5)
    model, run = world.interactive_model(), Run(curve_episodes=2)
    inter_fail(model, None, InterFailConfig(iterations=7, samples=5, points=3), jax.random.key(0), run)
    assert (model.ledger.episodes, model.queries.steps) == (35, 35)
    assert [line["queries"] for line in run.metrics] == [10, 20, 35]
    assert 35 < model.ledger.steps < 200


def test_worlds_without_an_offline_distribution_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(AccessError, match=r"which lock does not have; use the environment discounted, or fail"):
        hyrlo.train("inter-fail", hyrlo.make("lock", 3), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    world = hyrlo.make("discounted")
    with pytest.raises(AccessError, match="a trace model does not have"):
        inter_fail(world.trace_model(), None, InterFailConfig(), jax.random.key(0), Run())
    with pytest.raises(HyrloError, match="leave out --data"):
        hyrlo.train("inter-fail", world, world.behaviour_data(episodes=5), config=InterFailConfig())
    for wrong in ({"iterations": 0}, {"eta": 0.0}, {"burn_in": 1.0}, {"samples": -1}):
        with pytest.raises(HyrloError):
            replace(InterFailConfig(), **wrong)
