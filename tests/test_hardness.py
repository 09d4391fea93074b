"""The two hardness constructions: their structure, the numbers of the propositions, and the command line."""

import csv
import json

import numpy as np
import pytest

from hyrlo.cli.main import main
from hyrlo.core.errors import HyrloError
from hyrlo.diagnostics.coverage import coverage, forward_coverage
from hyrlo.distances.value import total_variation
from hyrlo.envs import ENVIRONMENTS, make
from hyrlo.experiments.theory_hardness import check_tree, check_tv, reset_episodes
from hyrlo.theory.finite import state_frequencies
from hyrlo.theory.hardness import hard_tree, hard_tv, search, search_is_blind, tv_minimisers, tv_of


def children(tree, h, node):
    return set(tree.mdp.successors[h, node, :, 0].tolist())


@pytest.mark.parametrize(("horizon", "actions"), [(3, 2), (5, 2), (4, 3)])
def test_the_tree_is_as_the_proposition_says(horizon, actions):
    for seed in range(5):
        tree = hard_tree(horizon, actions, seed)
        mdp = tree.mdp
        assert mdp.states == sum(actions**h for h in range(horizon + 1))
        below = {int(tree.other[1])}
        for h in range(1, horizon):
            assert tree.best[h + 1] in children(tree, h, tree.best[h])
            below = set().union(*(children(tree, h, node) for node in below))
            assert tree.other[h + 1] in below  # in the other half
            assert (tree.other[h + 1] in children(tree, h, tree.other[h])) == (h == 1)  # and no child from step 3 on
        assert len(below) == actions ** (horizon - 1)
        assert mdp.optimal_value() == 1
        assert np.array_equal(np.flatnonzero(mdp.occupancy(mdp.optimal_policy()).sum(axis=0)), np.sort(tree.best))
        assert coverage(mdp, mdp.optimal_policy(), tree.offline) == 2
        assert np.allclose(tree.offline.sum(axis=1), 1)


def test_no_policy_produces_the_trees_data():
    """The mass that can be at the other node of step 3 is that of its parent at step 2, which has none in the data."""
    tree = hard_tree(5)
    uniform = np.full(tree.mdp.rewards.shape, 0.5)
    parent = next(int(n) for n in range(tree.mdp.states) if tree.other[3] in children(tree, 2, n))
    assert tree.offline[2, parent] == 0
    assert total_variation(tree.mdp.occupancy(uniform)[-1], tree.offline[-1]) > 0.5


def test_the_search_for_the_other_leaf_is_blind():
    assert search_is_blind(3, 2) == 2.5
    assert search_is_blind(10, 2) == (2**9 + 1) / 2
    counts = [search(hard_tree(5, seed=s), np.random.default_rng(s + 1)) for s in range(400)]
    assert min(counts) >= 1
    assert max(counts) <= 16
    assert np.mean(counts) == pytest.approx(8.5, abs=4 * 16 / np.sqrt(12 * 400))
    places = [int(np.flatnonzero(np.sort(list(_half(t))) == t.other[-1])[0]) for t in map(_tree, range(400))]
    assert np.bincount(places, minlength=16).min() > 8  # labels do not tell where it is


def _tree(seed):
    return hard_tree(5, seed=seed)


def _half(tree):
    below = {int(tree.other[1])}
    for h in range(1, 5):
        below = set().union(*(children(tree, h, node) for node in below))
    return below


@pytest.mark.parametrize(("horizon", "actions"), [(4, 2), (3, 3)])
def test_with_resets_two_states_and_every_action_are_enough(horizon, actions):
    assert reset_episodes(hard_tree(horizon, actions, seed=7)) == (2 * actions * horizon, 1.0)


def test_the_tv_construction_has_the_papers_numbers():
    hard = hard_tv()
    assert coverage(hard.mdp, hard.mdp.optimal_policy(), hard.offline) == pytest.approx(18)
    deterministic, stochastic = tv_minimisers()
    assert deterministic == pytest.approx([0, 0.1])
    assert tv_of(1.0) == pytest.approx(0.85)
    assert stochastic == pytest.approx([2 / 19, 0.1 - 0.1 * 2 / 19], abs=1e-6)
    assert hard.mdp.optimal_value() == pytest.approx(0.1)
    covers = np.tile(np.array([17 / 19, 2 / 19]), (2, 4, 1))
    assert forward_coverage(hard.mdp, hard.mdp.optimal_policy(), covers) == pytest.approx(9.5)


def test_the_statements_that_hold_and_those_that_do_not():
    assert all(row["holds"] is not False for row in check_tree(4, searches=50))
    holds = {row["statement"]: row["holds"] for row in check_tv(rounds=2000)}
    assert all(holds[s] for s in holds if "deterministic" in s or "resets" in s or s == "coverage of π*")
    assert not any(holds[s] for s in holds if "all policies" in s or "Algorithm 4" in s or "F_1 = {R_1}" in s)


def test_worlds_by_name():
    assert {"hard-tree", "hard-tv"} <= set(ENVIRONMENTS)
    world = make("hard-tree", 5)
    data = world.behaviour_data(seed=1, episodes=10)
    assert np.array_equal(state_frequencies(data), world.hard.offline)
    assert data.fingerprint() == make("hard-tree", 5).behaviour_data(seed=1, episodes=10).fingerprint()
    assert np.allclose(state_frequencies(make("hard-tv").behaviour_data(episodes=100)), hard_tv().offline)
    for bad, text in (
        (lambda: make("hard-tree", 2), "at least 3"),
        (lambda: make("hard-tree", 30), "give a smaller horizon"),
        (lambda: make("hard-tv", 5), "so give 2"),
        (lambda: make("hard-tv", actions=3), "no option actions"),
        (lambda: world.behaviour_data(epsilon=0.1), "leave epsilon out"),
        (lambda: world.behaviour_transitions(), "no actions and rewards"),
    ):
        with pytest.raises(HyrloError, match=text):
            bad()


@pytest.mark.learning
def test_foobar_trains_on_them_from_the_command_line(tmp_path, capsys):
    small = ["--forward.samples", "200", "--backward.samples", "300", "--eval-episodes", "200", "--quiet"]
    assert main(["train", "foobar", "hard-tree", "--horizon", "4", *small, "--out", str(tmp_path / "run")]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["success_rate"] > 0.9  # hard to match, yet the forward policy covers the optimal path
    assert main(["eval", str(tmp_path / "run"), "--episodes", "50"]) == 0
    assert main(["train", "foobar", "hard-tv", "--lock.actions", "3"]) == 2
    assert "--lock.* options are for other environments" in capsys.readouterr().err


@pytest.mark.learning
def test_the_experiment_runs_at_smoke_scale(tmp_path, capsys):
    assert main(["reproduce", "theory", "--scale", "smoke", "--out", str(tmp_path)]) == 0
    out = tmp_path / "smoke" / "theory"
    for theorem in ("5.1", "5.2", "D.1", "E.1"):
        assert f"Theorem {theorem}" in (out / "theory.md").read_text()
    with open(out / "theory-guarantees.csv") as file:
        rows = list(csv.DictReader(file))
    assert len({row["seed"] for row in rows}) == 4
    assert {p.suffix for p in out.iterdir()} == {".md", ".csv", ".png"}
