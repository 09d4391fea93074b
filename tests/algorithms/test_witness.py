"""Witnesses of Equation 1: best responses against brute force, and the forward pass that plays against them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import hyrlo
from hyrlo.core.errors import HyrloError
from hyrlo.core.jax_model import JaxTraceModel
from hyrlo.core.networks import MLP
from hyrlo.core.regression import LatentProjection, RegressionData
from hyrlo.core.whitening import Whitening
from hyrlo.distances import StateUnits
from hyrlo.forward import witness as w
from hyrlo.forward.fail import fail
from hyrlo.forward.importance import ImportanceConfig
from hyrlo.forward.minmax import GameConfig
from hyrlo.forward.regression import PRESETS, RegressionConfig, regressed_mmd
from hyrlo.runs.directory import MemoryRun
from hyrlo.theory.finite import FiniteMDP
from tests.algorithms.test_exact import ACTIONS, HORIZON, STATES, behaviour, probabilities

KEY = jax.random.key(0)
UNITS = StateUnits(Whitening.identity(4))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), everything=st.booleans())
def test_the_best_response_is_the_best_of_the_class(seed, everything):
    """Against a loop over f, a′ and both signs, in numpy, of Algorithm 4's payoff."""
    rng = np.random.default_rng(seed)
    functions, n, m, actions = 5, 12, 9, 3
    tables = {n: rng.normal(size=(functions, n, actions)), m: rng.normal(size=(functions, m, actions))}
    weights = rng.dirichlet(np.ones(m))
    taken, policy = rng.integers(actions, size=n), rng.dirichlet(np.ones(actions), size=n)
    batch = np.arange(n) if everything else rng.integers(n, size=6)
    witnesses = w.finite_witnesses(
        w.ImportanceCounts(jnp.asarray(taken)),
        lambda states, h: tables[len(states)],
        jnp.zeros((n, 2)),
        jnp.zeros((m, 2)),
        jnp.asarray(weights, jnp.float32),
        h=1,
    )
    seen = witnesses.embed(jnp.asarray(policy[batch]), jnp.asarray(batch))
    response, _ = witnesses.respond((), seen)
    best = 0.0
    for on, off in zip(tables[n], tables[m], strict=True):
        for action in range(actions):
            g_on, g_off = on.max(axis=1) - on[:, action], off.max(axis=1) - off[:, action]
            payoff = np.mean([actions * policy[i, taken[i]] * g_on[i] for i in batch]) - weights @ g_off
            best = max(best, abs(payoff))
    assert float(witnesses.inner(response, seen)) == pytest.approx(best**2, rel=1e-3, abs=1e-6)
    assert int((response != 0).sum()) == 1


def test_regression_counts_give_the_regressed_mean_of_any_function():
    """Every next state regressed on itself, then a function of it: the same as the function regressed."""
    keys = jax.random.split(KEY, 4)
    states, actions = jax.random.normal(keys[0], (40, 3)), jax.nn.one_hot(jax.random.randint(keys[1], (40,), 0, 3), 3)
    values, encoder = jax.random.normal(keys[2], (40, 5)), jax.random.normal(keys[3], (3, 3))
    policy = jax.nn.softmax(states)
    counts = regressed_mmd(encoder, RegressionData(states, actions, jnp.eye(40)), jnp.zeros(40), LatentProjection())
    direct = regressed_mmd(encoder, RegressionData(states, actions, values), jnp.zeros(5), LatentProjection())
    everything = jnp.arange(40)
    np.testing.assert_allclose(
        counts.embed(policy, everything) @ values, direct.embed(policy, everything), atol=1e-4
    )  # fmt: skip


def test_random_functions_are_bounded_differ_and_follow_the_seed():
    states = 5 * jax.random.normal(KEY, (200, 4))
    config, weights = w.RandomValues(functions=8), jnp.full(200, 1 / 200)
    draw = lambda seed: w.random_functions(jax.random.key(seed), states, states, weights, UNITS, 3, config)(states, 1)  # noqa: E731
    values = draw(1)
    assert values.shape == (8, 200, 3)
    assert float(values.min()) >= 0
    assert float(values.max()) <= 1
    np.testing.assert_array_equal(values, draw(1))
    assert float(jnp.abs(values - draw(2)).max()) > 0.1
    assert float(values.std(axis=1).min()) > 0.01
    g = w.differences(values)
    assert g.shape == (200, 24)
    np.testing.assert_allclose(g[7, 3 * 2 + 1], values[2, 7].max() - values[2, 7, 1])


def network_problem(restarts=4, **options):
    """Online and offline states on a line that differ in spread: no linear witness tells them apart."""
    online, offline = jax.random.normal(KEY, (150, 1)), 0.3 * jax.random.normal(jax.random.key(1), (100, 1))
    config = w.ValueNetwork(hidden=4, restarts=restarts, **options)
    counts = w.ImportanceCounts(jnp.arange(150) % 2)
    weights, units = jnp.full(100, 0.01), StateUnits.of(offline, ends=False)
    problem = w.NetworkWitnesses.create(jax.random.key(2), counts, online, offline, weights, units, 2, config)
    return problem, jnp.full(150, 1 / 150)


@pytest.mark.slow
def test_ascent_comes_near_the_best_witness_of_a_small_class():
    """Networks that climb over the rounds of a game, against many restarts and against random networks."""
    problem, seen = network_problem(ascent=5)
    respond = eqx.filter_jit(lambda memory: problem.respond(memory, seen))
    memory = problem.start()
    first = float(problem.inner(respond(memory)[0], seen)) ** 0.5
    for _ in range(100):
        response, memory = respond(memory)
    found = float(problem.inner(response, seen)) ** 0.5
    many, _ = network_problem(restarts=30, ascent=500)
    best = float(many.inner(eqx.filter_jit(many.respond)(many.start(), seen)[0], seen)) ** 0.5
    networks = jax.vmap(lambda k: w.within(MLP.create(k, (1, 4, 2), last_scale=3.0), 4.0))(jax.random.split(KEY, 5000))
    by_chance = jnp.abs(jax.vmap(lambda n: problem.inner(problem.values(n), seen))(networks)).max()
    assert found > 0.9 * best
    assert found > float(by_chance) - 0.01
    assert found > first + 0.1
    networks, _ = memory[0]
    values = jax.vmap(problem.values)(networks)
    assert float(values.min()) >= 0
    assert float(values.max()) <= 1
    norms = [jnp.linalg.norm(weights, axis=(1, 2)).max() for weights in networks.weights]
    assert max(float(norm) for norm in norms) <= 4.0 + 1e-4


def test_both_signs_are_found():
    """Witnesses are never negative, so more mass online is seen by one sign, less by the other."""
    problem, seen = network_problem(ascent=200)
    for mass, sign in ((0.2, -1), (3.0, 1)):
        response, _ = eqx.filter_jit(problem.respond)(problem.start(), mass * seen)
        assert np.sign(float(response[:-1].sum())) == sign
        assert float(problem.inner(response, mass * seen)) > 0.1


def test_networks_feel_states_at_which_their_witness_is_zero():
    """f(·, 0) is the largest at all states: g is 0 there, and yet there is a way up."""
    network = MLP.create(KEY, (1, 4, 3))
    network = eqx.tree_at(lambda n: n.biases[-1], network, jnp.array([8.0, 7.0, 7.0]) / 4)
    network = eqx.tree_at(lambda n: n.weights[-1], network, jnp.zeros((4, 3)))
    states = jnp.linspace(-1, 1, 5)[:, None]
    np.testing.assert_allclose(w.difference(network, states), 0.0, atol=1e-6)
    up = jax.grad(lambda n: w.difference(n, states).mean())(network).biases[-1]
    assert float(up[0]) < -0.01
    assert float(up[1:].min()) > 0.01


def test_networks_that_went_flat_come_back():
    """First only E_off − E_on pays, which leaves the other sign at g = 0, then only E_on − E_off, then the first again."""
    problem, seen = network_problem(restarts=2, ascent=20)
    respond = eqx.filter_jit(problem.respond)
    memory = problem.start()
    for mass, sign in ((0.2, -1), (3.0, 1), (0.2, -1)):
        for _ in range(30):
            response, memory = respond(memory, mass * seen)
        assert np.sign(float(response[:-1].sum())) == sign
        assert float(problem.inner(response, mass * seen)) > 0.25


GAME = GameConfig(iterations=150, learning_rate=0.005)


def exact_values(mdp, rng, size=40):
    """Q^π of random deterministic policies; at H, where no action follows, random functions."""
    policies = np.eye(ACTIONS)[rng.integers(ACTIONS, size=(size, HORIZON, STATES))]
    tables = [*np.stack([mdp.q(policy) for policy in policies], axis=1), rng.uniform(size=(size, STATES, ACTIONS))]
    return lambda states, h: jnp.einsum("ns,fsa->fna", states, jnp.asarray(tables[h], jnp.float32))


@pytest.mark.learning
@pytest.mark.parametrize(
    "config",
    [
        ImportanceConfig(samples=1500, batch=4000, game=GAME, witness=w.RandomValues()),
        RegressionConfig(
            samples=1500, latents=STATES, game=dataclasses.replace(GAME, learning_rate=0.1), witness=w.RandomValues()
        ),
        ImportanceConfig(samples=1500, batch=4000, game=GAME, witness=w.ValueNetwork()),
    ],
)
def test_fail_matches_the_exact_occupancy(config):
    mdp = FiniteMDP.random(6, HORIZON, STATES, ACTIONS)
    target, data = behaviour(mdp, 3, n=1500)
    run = MemoryRun(curve_episodes=2)
    policy = fail(JaxTraceModel(mdp), data, config, jax.random.key(0), run)
    wanted = mdp.occupancy(target)
    reached = mdp.occupancy(probabilities(policy, mdp))
    assert 0.5 * np.abs(mdp.occupancy(np.full_like(target, 1 / ACTIONS)) - wanted).sum(axis=1).max() > 0.3
    assert 0.5 * np.abs(reached - wanted).sum(axis=1).max() < 0.12
    assert all(0 <= line["ipm"] < 0.06 for line in run.metrics)


def least_ipm(mdp, before, after, g, h):
    """By linear programming: the least IPM to `after` that a policy at step h reaches from `before`."""
    reach = np.einsum("s,sat,tk->sak", before, mdp.transitions[h], g).reshape(STATES * ACTIONS, -1).T
    offline = after @ g
    slack = np.full((len(offline), 1), -1.0)
    each_state = np.hstack([np.kron(np.eye(STATES), np.ones(ACTIONS)), np.zeros((STATES, 1))])
    return linprog(
        np.eye(STATES * ACTIONS + 1)[-1],
        np.vstack([np.hstack([reach, slack]), np.hstack([-reach, slack])]),
        np.concatenate([offline, -offline]),
        each_state,
        np.ones(STATES),
    ).fun


@pytest.mark.learning
def test_fail_takes_a_class_of_ones_own_and_matches_what_it_sees():
    """With Q-functions of the MDP no step's IPM is far from the least there is, by linear programming, from where it starts."""
    mdp = FiniteMDP.random(6, HORIZON, STATES, ACTIONS)
    target, data = behaviour(mdp, 3, n=1500)
    functions = exact_values(mdp, np.random.default_rng(0))
    config = ImportanceConfig(samples=1500, batch=4000, game=GAME, witness=w.GivenValues(functions=functions))
    policy = fail(JaxTraceModel(mdp), data, config, jax.random.key(0), MemoryRun(curve_episodes=2))
    wanted, uniform = mdp.occupancy(target), mdp.occupancy(np.full_like(target, 1 / ACTIONS))
    reached, far = mdp.occupancy(probabilities(policy, mdp)), 0.0
    for h in range(HORIZON):
        g = np.asarray(w.differences(functions(jnp.eye(STATES), h + 1)), float)
        g /= g.max()
        ipm = np.abs((reached[h + 1] - wanted[h + 1]) @ g).max()
        assert ipm < least_ipm(mdp, reached[h], wanted[h + 1], g, h) + 0.04
        far = max(far, np.abs((uniform[h + 1] - wanted[h + 1]) @ g).max())
    assert far > 0.12  # doing nothing is not enough


@pytest.mark.learning
@pytest.mark.parametrize("witness", [w.RandomValues(), w.ValueNetwork()])
def test_fail_opens_the_lock_as_often_as_the_data_do(witness):
    """ε-greedy with ε = 1/3 stays good with probability (1 − 0.3)³ = 0.343; uniform actions do in 0.001."""
    fast = PRESETS["fast"]
    game = dataclasses.replace(fast.game, iterations=100)
    config = dataclasses.replace(fast, witness=witness, samples=800, offline_samples=800, game=game)
    world = hyrlo.make("lock", horizon=3)
    runs = [hyrlo.train("fail", world, config=config, seed=s, curve_episodes=2, eval_episodes=2000) for s in range(3)]
    assert 0.24 < np.mean([run.result["success_rate"] for run in runs]) < 0.45


def test_discriminators_are_chosen_by_name():
    assert isinstance(hyrlo.config("fail", discriminator="value").witness, w.RandomValues)
    assert isinstance(hyrlo.config("foobar", discriminator="value-network").forward.witness, w.ValueNetwork)
    assert isinstance(hyrlo.config("fail", forward="importance", discriminator="exact").witness, w.ExactMmd)
    with pytest.raises(HyrloError, match="descends the MMD itself"):
        hyrlo.config("fail", forward="model", discriminator="value")
    with pytest.raises(HyrloError, match="add --forward importance"):
        hyrlo.config("fail", discriminator="exact")
    with pytest.raises(HyrloError, match="restarts is 1"):
        w.ValueNetwork(restarts=1)


@pytest.mark.parametrize(
    ("values", "message"),
    [(np.zeros((5, 2)), "shape"), (np.zeros((3, 4, 2)), "shape"), (np.full((3, 5, 2), np.nan), "step 7, entry")],
)
def test_a_class_that_cannot_be_used_is_refused(values, message):
    states = jnp.zeros((5, 2))
    with pytest.raises(HyrloError, match=message):
        w.finite_witnesses(
            w.ImportanceCounts(jnp.zeros(5, int)), lambda s, h: values, states, states, jnp.full(5, 0.2), 7
        )
