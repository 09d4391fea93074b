"""States are compared in units that do not matter, and ended episodes as a share of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyrlo
from hyrlo.backward import psdp
from hyrlo.core.access import Recorded, Spec
from hyrlo.core.directions import PrincipalDirections
from hyrlo.core.networks import latent_state
from hyrlo.core.regression import (
    FitReport,
    LatentProjection,
    RegressionData,
    create_q,
    fit_encoder,
    fit_q,
)
from hyrlo.core.whitening import Whitening
from hyrlo.data.states import ObservationDataset
from hyrlo.distances import Compared, ExactMMD, ImportanceMMD, StateUnits, compared_bandwidth
from hyrlo.distances.mmd import compared_features, compared_kernel, compared_mean
from hyrlo.distances.two_sample import PaddedStates, TestConfig, compare, mmd_test
from hyrlo.distances.units import LEAST_SPREAD
from hyrlo.forward import witness as w
from hyrlo.forward.goals import features_of, unbiased_distance2
from hyrlo.forward.gradient import GradientConfig, goal_maker, initial_policies
from hyrlo.forward.importance import ImportanceConfig
from hyrlo.forward.minmax import GameConfig
from hyrlo.forward.regression import RegressionConfig
from hyrlo.forward.seek import SeekConfig, density_ratio
from hyrlo.runs.directory import MemoryRun

KEY = jax.random.key(0)
N = 400
SCALE, SHIFT = np.array([1.0, 1000.0], np.float32), np.array([0.0, 1e4], np.float32)  # of the velocity


def car(seed: int, sign: float = 1.0, n: int = N) -> np.ndarray:
    """Position and velocity as in MountainCar: the velocity is small, and positive further right."""
    position = np.random.default_rng(seed).normal(-0.5, 0.1, n)
    velocity = np.random.default_rng(seed + 1000).normal(0.01, 0.01, n) + 0.05 * (position + 0.5)
    return np.stack([position, sign * velocity], axis=1).astype(np.float32)


def flagged(states: np.ndarray, ended: float) -> np.ndarray:
    """With the flag; the first of them have ended."""
    states = np.pad(states, ((0, 0), (0, 1)))
    states[: int(ended * len(states))] = np.eye(states.shape[1])[-1]
    return states


def recorded(states: np.ndarray, next_states: np.ndarray) -> Recorded:
    actions = np.arange(len(states)) % 2
    zero = np.zeros(len(states), np.float32)
    return Recorded(
        zero, None, jnp.asarray(states), jnp.asarray(actions), zero, zero, jnp.asarray(next_states), zero > 0
    )


GAME = GameConfig(iterations=20, learning_rate=0.01)
ONE_STEP = {
    "importance": ImportanceConfig(hidden=8, game=GAME),
    "exact": ImportanceConfig(hidden=8, game=GAME, witness=w.ExactMmd()),
    "regression": RegressionConfig(game=GAME),
    "value": ImportanceConfig(hidden=8, game=GAME, witness=w.RandomValues()),
    "value-network": ImportanceConfig(hidden=8, game=GAME, witness=w.ValueNetwork()),
    "regression-value": RegressionConfig(game=GAME, witness=w.RandomValues()),
}


def one_step(name: str, online: np.ndarray, offline: np.ndarray, ends: bool) -> float:
    """The distance that the estimator reports; actions change nothing, so that no policy can help."""
    before = flagged(car(7), 0.1) if ends else car(7)
    before[:, : SCALE.size] = np.where(before[:, -1:] * ends > 0.5, 0.0, before[:, : SCALE.size])
    data = ObservationDataset((offline, offline))
    estimator = ONE_STEP[name].estimator(Spec(1, online.shape[1], 2, ends=ends), data, KEY)
    return estimator.solve(KEY, recorded(online, online), data.padded(1), 0)[1] ** 2


def by_gradient(units: str):
    def distance2(online: np.ndarray, offline: np.ndarray, ends: bool) -> float:
        """As the estimators `model` and `density` measure it."""
        data, spec = ObservationDataset((offline, offline)), Spec(1, online.shape[1], 2, ends=ends)
        config = GradientConfig(units=units, features=1024)
        maker = goal_maker(KEY, data, spec, StateUnits.of_steps(data.steps, ends), config)
        goal = jax.tree.map(lambda x: x[0], maker.after(0, 1, 1))
        return float(unbiased_distance2(features_of(jnp.asarray(online), goal, 0.0), goal.means))

    return distance2


def permutation(online: np.ndarray, offline: np.ndarray, ends: bool) -> float:
    padded = (PaddedStates.shuffled([x], 0) for x in (online, offline))
    return float(mmd_test(*padded, 1, seed=0, ends=ends).mmd2[0])


def classifier(online: np.ndarray, offline: np.ndarray, ends: bool) -> float:
    config = TestConfig(most=200, permutations=19, updates=300, resamples=10)
    return compare([online], [offline], config, 0, ends).effects[0].gap


def seeking(online: np.ndarray, offline: np.ndarray, ends: bool) -> float:
    """How far the density ratio is from 1."""
    weights = jnp.full(len(offline), 1 / len(offline))
    units = StateUnits.of(jnp.asarray(offline), ends)
    ratio = density_ratio(KEY, jnp.asarray(online), jnp.asarray(offline), weights, units, SeekConfig())
    return float(jnp.mean((ratio - 1) ** 2))


DISTANCES = {name: (lambda *args, name=name: one_step(name, *args)) for name in ONE_STEP} | {
    "gradient-all": by_gradient("all"),
    "gradient-step": by_gradient("step"),
    "gradient-joint": by_gradient("joint"),
    "permutation": permutation,
    "classifier": classifier,
    "seek": seeking,
}
every_distance = pytest.mark.parametrize("distance2", DISTANCES.values(), ids=DISTANCES)


@every_distance
def test_negated_velocities_are_far_above_the_floor(distance2):
    """The velocity is a hundredth of the position: without whitening it could as well be missing."""
    far, floor = distance2(car(1, sign=-1.0), car(2), False), distance2(car(1), car(2), False)
    assert far > max(5 * floor, 0.03)


@every_distance
def test_units_and_offsets_of_single_dimensions_do_not_matter(distance2):
    for ends in (False, True):
        here, there = (car(1, sign=-1.0), car(2)) if not ends else (flagged(car(1), 0.3), flagged(car(2), 0.1))
        plain = distance2(here, there, ends)
        moved = []
        for states in (here, there):
            other = states.copy()
            other[:, :2] = states[:, :2] * SCALE + SHIFT
            if ends:
                other[states[:, -1] > 0.5, :2] = 0.0  # the absorbing state is zeros in all units
            moved.append(other)
        assert distance2(*moved, ends) == pytest.approx(plain, rel=0.1, abs=0.003)


@every_distance
def test_a_larger_share_of_ended_episodes_is_seen(distance2):
    """The states of the others coincide."""
    offline = flagged(car(2), 0.0)
    far, floor = (distance2(flagged(car(1), share), offline, True) for share in (0.5, 0.0))
    assert far > max(5 * floor, 0.03)  # a value function of Equation 1 sees at most a quarter of it


def test_half_of_the_poles_fallen_costs_more_than_a_pole_held_too_well():
    """Balanced poles swing; the policy either holds them nearly still, or loses half of them."""
    rng = np.random.default_rng(0)
    swinging = rng.normal(0, [0.3, 0.4, 0.05, 0.4], (2, N, 4)).astype(np.float32)
    still = 0.3 * swinging[0]
    for name in ("importance", "exact", "regression"):
        too_well = one_step(name, flagged(still, 0.0), flagged(swinging[1], 0.0), True)
        fallen = one_step(name, flagged(swinging[0], 0.5), flagged(swinging[1], 0.0), True)
        assert fallen > 1.5 * too_well > 0.02


# The kernel on S ∪ {ended}


def compared(states: np.ndarray, ended: np.ndarray) -> Compared:
    return Compared(jnp.asarray(states), jnp.asarray(ended, jnp.float32))


def test_the_kernel_is_that_of_states_one_between_ended_and_zero_across():
    states = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    x = compared(states, np.array([0, 0, 1]))
    near = np.exp(-((states[0] - states[1]) ** 2).sum() / 8)
    expected = np.array([[1, near, 0], [near, 1, 0], [0, 0, 1]])
    np.testing.assert_allclose(compared_kernel(x, x, 2.0), expected, atol=1e-6)
    weights = jnp.array([0.2, 0.3, 0.5])
    np.testing.assert_allclose(compared_mean(x, x, weights, 2.0), expected @ weights, atol=1e-6)
    features = compared_features(x, jax.random.normal(KEY, (2, 20_000)), 2.0)
    np.testing.assert_allclose(features @ features.T, expected, atol=0.03)


@pytest.mark.parametrize(("ours", "theirs"), [(0.5, 0.0), (0.25, 0.75), (1.0, 0.0), (0.5, 0.5)])
def test_where_the_states_coincide_the_distance_is_that_of_the_shares(ours, theirs):
    """MMD² = (p − q)² (1 + ‖μ‖²), with μ the mean embedding of the states that go on."""
    going = np.tile(car(1, n=4), (25, 1))  # every quarter of them is the same
    states = [flagged(going, share) for share in (ours, theirs)]
    units = StateUnits.of(jnp.asarray(flagged(going, 0.0)), ends=True)
    online, offline = (units(jnp.asarray(s)) for s in states)
    weights, actions = jnp.full(100, 0.01), jnp.zeros(100, int)
    exact = ExactMMD.create(online, actions, offline, weights)
    frequencies = jax.random.normal(KEY, (2, 20_000))
    embedded = [compared_features(x, frequencies, exact.bandwidth) for x in (online, offline)]
    norm2 = float(compared_kernel(units(flagged(going, 0.0)), units(flagged(going, 0.0)), exact.bandwidth).mean())
    for mmd in (exact, ImportanceMMD(embedded[0], weights @ embedded[1], actions)):
        seen = mmd.embed(jnp.ones((100, 1)), jnp.arange(100))
        assert float(mmd.inner(seen, seen)) == pytest.approx((ours - theirs) ** 2 * (1 + norm2), abs=0.01)


def test_the_bandwidth_is_the_median_distance_of_states_that_go_on_and_have_a_weight():
    units = StateUnits.of(jnp.asarray(flagged(car(1), 0.0)), ends=True)
    whole, dying = (units(jnp.asarray(flagged(car(1), share))) for share in (0.0, 0.9))
    last = Compared(*(x[-40:] for x in whole))
    expected = float(compared_bandwidth(last, last))
    assert float(compared_bandwidth(dying, dying)) == pytest.approx(expected, rel=1e-5)
    weights = jnp.arange(N) >= N - 40
    assert float(compared_bandwidth(whole, whole, weights, weights)) == pytest.approx(expected, rel=1e-5)
    gone = units(jnp.asarray(flagged(car(1), 1.0)))
    assert float(compared_bandwidth(gone, gone)) == 1.0  # nobody left


def test_gradients_of_the_share_that_ended_flow():
    x = car(1, n=2)
    mass = lambda e: compared_features(compared(x, e * np.ones(2)), jnp.ones((2, 1)), 1.0).sum(axis=0)[-1]  # noqa: E731
    assert float(jax.grad(mass)(0.0)) == pytest.approx(2.0)


# Units


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_an_offset_leaves_the_distance_of_double_precision(shift):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(N, 3)) + shift).astype(np.float32), (rng.normal(0.5, 1, (N, 3)) + shift).astype(np.float32)
    mean, deviation = y.astype(float).mean(axis=0), y.astype(float).std(axis=0)
    a, b = ((s.astype(float) - mean) / deviation for s in (x, y))
    pool = np.concatenate([a[np.linspace(0, N - 1, 256).astype(int)], b[np.linspace(0, N - 1, 256).astype(int)]])
    units, weights, actions = StateUnits.of(jnp.asarray(y), ends=False), jnp.full(N, 1 / N), jnp.zeros(N, int)
    exact = ExactMMD.create(units(jnp.asarray(x)), actions, units(jnp.asarray(y)), weights)
    squares = ((pool[:, None] - pool) ** 2).sum(axis=2)
    assert float(exact.bandwidth) == pytest.approx(np.median(squares[np.triu_indices(512, 1)]) ** 0.5, rel=0.03)
    k = lambda p, q: np.exp(-((p[:, None] - q) ** 2).sum(axis=2) / (2 * float(exact.bandwidth) ** 2)).mean()  # noqa: E731
    truth = k(a, a) + k(b, b) - 2 * k(a, b)
    seen = exact.embed(jnp.ones((N, 1)), jnp.arange(N))
    assert float(exact.inner(seen, seen)) == pytest.approx(truth, rel=1e-3)
    frequencies = jax.random.normal(KEY, (3, 20_000))
    embedded = [compared_features(units(jnp.asarray(s)), frequencies, exact.bandwidth) for s in (x, y)]
    assert float(jnp.sum((embedded[0].mean(axis=0) - embedded[1].mean(axis=0)) ** 2)) == pytest.approx(truth, rel=0.05)


def test_units_of_a_step_are_those_of_episodes_that_go_on_but_not_far_below_all():
    states = jnp.array([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    of_all = StateUnits(Whitening(jnp.array([7.0, 0.0]), jnp.array([5.0, 1.0])), ends=True)
    own = of_all.of_step(states, jnp.full(4, 0.25)).whitening
    np.testing.assert_allclose(own.shift, [2.0, 0.0])
    np.testing.assert_allclose(own.scale, [max(1.0, 5 * LEAST_SPREAD), LEAST_SPREAD], rtol=1e-6)
    finer = StateUnits(Whitening(jnp.zeros(2), jnp.full(2, 0.1)), ends=True)
    np.testing.assert_allclose(finer.of_step(states, jnp.full(4, 0.25)).whitening.scale[0], 1.0)
    gone = of_all.of_step(states[2:], jnp.full(2, 0.5)).whitening
    np.testing.assert_array_equal(gone.shift, of_all.whitening.shift)
    np.testing.assert_array_equal(gone.scale, of_all.whitening.scale)


def test_ended_states_are_zeros_for_networks_and_keep_their_flag():
    states = jnp.asarray(flagged(car(1) + 1e4, 0.25))
    units = StateUnits.of(states, ends=True)
    inputs = np.asarray(units.inputs(states))
    np.testing.assert_array_equal(inputs[: N // 4], np.tile([0.0, 0.0, 1.0], (N // 4, 1)))
    np.testing.assert_allclose(inputs[N // 4 :].mean(axis=0), 0.0, atol=0.01)
    np.testing.assert_allclose(inputs[N // 4 :, :2].std(axis=0), 1.0, atol=0.02)
    middle = np.asarray(units.centred(states))
    np.testing.assert_allclose(
        middle[: N // 4], np.tile([*middle[N // 4 :, :2].mean(axis=0), 1.0], (N // 4, 1)), rtol=1e-5
    )
    np.testing.assert_array_equal(middle[N // 4 :], states[N // 4 :])


@pytest.mark.parametrize("level", [0.0, 0.1, -1234.5, 1e4])
def test_constant_dimensions_are_only_shifted(level):
    states = np.pad(car(1), ((0, 0), (0, 1)), constant_values=np.float32(level))
    whitening = Whitening.of(jnp.asarray(states))
    assert float(whitening.scale[2]) == 1.0
    np.testing.assert_allclose(whitening(jnp.asarray(states))[:, 2], 0.0, atol=1e-3)
    tiny = Whitening.of(jnp.asarray(1e-9 * car(1)))  # a unit of its own, not a constant
    np.testing.assert_allclose(np.asarray(tiny(jnp.asarray(1e-9 * car(1)))).std(axis=0), 1.0, rtol=1e-3)


def test_policies_by_gradient_see_their_own_step_in_its_units():
    data = ObservationDataset((car(1), car(2) + np.float32(0.5), car(3)))
    spec, config = Spec(2, 2, 2), GradientConfig(units="step")
    network = initial_policies(KEY, data, spec, 1, StateUnits.of_steps(data.steps, False), config).steps.network
    np.testing.assert_allclose(network.shift, [car(1).mean(axis=0), car(2).mean(axis=0) + 0.5], atol=1e-4)


def test_random_functions_tell_who_has_ended_however_many_dimensions_there_are():
    states = jnp.pad(jax.random.normal(KEY, (50, 60)), ((0, 0), (0, 1)))
    units, weights = StateUnits(Whitening.identity(61), ends=True), jnp.full(50, 0.02)
    functions = w.random_functions(KEY, states, states, weights, units, 2, w.RandomValues())
    going, ended = functions(jnp.zeros((2, 61)).at[1, -1].set(1.0), 1).swapaxes(0, 1)
    assert float(jnp.abs(going - ended).mean()) > 0.1


def test_a_comparison_knows_of_ended_episodes_in_both_tests_and_in_the_floor():
    ours, theirs = flagged(car(1), 0.5), flagged(car(2), 0.2)
    config = TestConfig(most=N, permutations=19, updates=20, resamples=10)
    found = compare([ours], [theirs], config, 0, ends=True)
    assert float(found.mmd.mmd2[0]) == pytest.approx(permutation(ours, theirs, True), abs=0.01)
    assert float(found.mmd.mmd2[0]) > 0.3**2 * 1.2  # (p − q)² (1 + ‖μ‖²); as one more coordinate it would be less
    halves = PaddedStates.shuffled([theirs], 1).halves()
    np.testing.assert_allclose(found.floor, mmd_test(*halves, 19, seed=0, ends=True).null, rtol=1e-4)


# The latent encoder


def regression_data(states: np.ndarray, n: int = 600) -> RegressionData:
    kind = (states[:, 0] > np.quantile(states[:, 0], 0.8)).astype(np.float32)
    return RegressionData(
        jnp.asarray(states), jax.nn.one_hot(jnp.arange(len(states)) % 2, 2), jnp.asarray(kind)[:, None]
    )


def test_the_encoder_depends_on_no_unit_and_no_offset():
    """A fifth of the states are of another kind: no boundary through the mean tells them apart."""
    plain = car(1, n=600)
    found = []
    for states in (plain, plain * SCALE + SHIFT, plain * np.float32([1, 1e5])):
        encoder, report = fit_encoder(KEY, regression_data(states), LatentProjection(latents=2))
        assert report.loss < 0.35 * report.baseline
        found.append(np.asarray(latent_state(jnp.asarray(states), encoder)))
    for other in found[1:]:  # latent states have no order
        assert min(np.abs(found[0] - other).mean(), np.abs(found[0] - other[:, ::-1]).mean()) < 0.04


def test_encoders_go_in_and_out_of_principal_directions():
    states = jnp.asarray(car(1) * SCALE + SHIFT)
    directions = PrincipalDirections.of(states, 2)
    inside = directions(states)
    np.testing.assert_allclose(np.cov(np.asarray(inside).T), np.eye(2), atol=0.02)
    encoder = jax.random.normal(KEY, (3, 3))
    outside = directions.encoder_of_states(encoder)
    np.testing.assert_allclose(latent_state(states, outside), latent_state(inside, encoder), atol=0.02)
    np.testing.assert_allclose(directions.encoder_inside(outside), encoder, atol=0.02)
    constant = jnp.pad(states, ((0, 0), (0, 1)), constant_values=3.0)
    assert float(jnp.abs(PrincipalDirections.of(constant, 3)(constant)).max()) < 10


def test_psdp_fits_states_of_ended_episodes_in_the_middle_of_the_others(monkeypatch):
    """As zeros they would decide the units of states that are far from zero."""
    world, seen = hyrlo.make("gym:CartPole-v1", 24, num_envs=8), []

    def fit(key, states, actions, targets, count, config, warm=None):
        seen.append(np.asarray(states))
        return create_q(key, states.shape[1], count, config), FitReport(0.0, 1.0, 1)

    monkeypatch.setattr(psdp, "fit_q", fit)
    config = psdp.PsdpConfig(samples=16, fit=LatentProjection())
    psdp.psdp_trace(world.trace_model(), world.spec.uniform(), config, KEY, MemoryRun(curve_episodes=1))
    ended = [states[:, -1] == 1 for states in seen]
    mixed = [(states, over) for states, over in zip(seen, ended, strict=True) if 0 < over.sum() < len(over)]
    assert mixed
    for states, over in mixed:
        middle = states[~over, :-1].mean(axis=0)
        np.testing.assert_allclose(states[over, :-1], np.tile(middle, (over.sum(), 1)), atol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_a_fit_finds_latent_states_beside_ended_episodes_at_any_offset(offset):
    rng, n = np.random.default_rng(0), 1000
    kind, actions, over = rng.integers(0, 3, n), rng.integers(0, 3, n), rng.random(n) < 0.3
    states = np.pad(np.eye(3)[kind] + 0.1 * rng.standard_normal((n, 3)) + offset, ((0, 0), (0, 1)))
    states[over] = [0, 0, 0, 1]
    states = jnp.asarray(states, jnp.float32)
    targets = jnp.asarray((actions == kind) & ~over, jnp.float32)
    centred = StateUnits.of(states, ends=True).centred(states)
    _, report = fit_q(KEY, centred, jnp.asarray(actions), targets, 3, LatentProjection(latents=4))
    assert report.loss < 0.1 * report.baseline
