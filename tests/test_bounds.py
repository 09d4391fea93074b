"""The paper's guarantees as calculators: against values worked out by hand, and their shape in every argument."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyrlo.cli.main import main
from hyrlo.core.errors import HyrloError
from hyrlo.theory.bounds import GUARANTEES, TABLE_1, BoundInputs, Rate

READINGS = ("printed", "proved")
WHOLE = ("horizon", "actions", "rounds")
GROWS = {  # with which arguments a bound becomes worse
    "hyq": {"horizon", "actions", "coverage_bellman", "rank", "log_functions", "constant"},
    "psdp": {"horizon", "actions", "coverage", "log_functions", "v_max", "constant", "least_squares"},
    "fail": {"horizon", "actions", "log_functions", "log_policies", "v_max", "bellman_error"},
    "cpi": {"coverage", "gamma", "ipm"},
    "inter-fail": {"actions", "log_functions", "log_policies", "v_max", "gamma", "bellman_error"},
}
GROWS["psdp-trace"] = GROWS["psdp"]
GROWS["foobar"] = GROWS["psdp"] | GROWS["fail"]
ONLY_PRINTED, ONLY_PROVED = {"constant"}, {"v_max", "least_squares"}

positive = st.floats(0.5, 20)
problems = st.builds(
    BoundInputs,
    horizon=st.integers(1, 50),
    actions=st.integers(1, 20),
    coverage=positive,
    coverage_bellman=positive,
    rank=positive,
    log_functions=st.floats(0, 50),
    log_policies=st.floats(0, 50),
    delta=st.floats(0.001, 0.5),
    v_max=positive,
    rounds=st.none() | st.integers(1, 10**6),
    gamma=st.floats(0.1, 0.99),
    ipm=st.floats(0, 1),
    bellman_error=st.floats(0, 1),
    constant=positive,
    least_squares=positive,
)


def grown(problem: BoundInputs, name: str, by: float) -> BoundInputs:
    value = getattr(problem, name)
    if name == "gamma":
        return replace(problem, gamma=value + (1 - value) * by / 10)
    return replace(problem, **{name: value + (math.ceil(by) if name in WHOLE else by)})


@pytest.mark.parametrize("name", GUARANTEES)
@settings(max_examples=25, deadline=None)
@given(problem=problems, by=st.floats(0.1, 5), n=st.integers(1, 10**9))
def test_errors_are_monotone_in_every_argument(name, problem, by, n):
    for reading in READINGS:
        error = GUARANTEES[name](problem).error(n, reading)
        if error is None:
            assert (name, reading) == ("hyq", "proved")
            continue
        assert GUARANTEES[name](problem).error(2 * n, reading) < error  # the more samples, the better
        assert GUARANTEES[name](replace(problem, delta=problem.delta / 2)).error(n, reading) >= error
        for argument in ("horizon", "actions", *(set(GROWS[name]) - {"horizon", "actions"})):
            larger = GUARANTEES[name](grown(problem, argument, by)).error(n, reading)
            absent = argument in (ONLY_PROVED if reading == "printed" else ONLY_PRINTED) or argument not in GROWS[name]
            if absent:
                assert larger == error, argument
            elif name == "foobar" and reading == "printed" and argument == "bellman_error":
                assert larger == error  # Theorem 5.2 assumes that there is none
            else:
                assert larger > error, argument


@pytest.mark.parametrize("name", GUARANTEES)
@settings(max_examples=25, deadline=None)
@given(problem=problems, n=st.integers(1, 10**9), epsilon=st.floats(0.01, 10))
def test_samples_and_errors_undo_each_other(name, problem, n, epsilon):
    guarantee = GUARANTEES[name](problem)
    for reading in READINGS:
        rates = guarantee.rates(reading)
        if rates is None:
            continue
        if len(rates) == 1:
            (samples,) = guarantee.samples(guarantee.error(n, reading), reading).values()
            assert samples == pytest.approx(n, rel=1e-3, abs=1)
        if epsilon / len(rates) <= max(rate.floor for rate in rates.values()):
            with pytest.raises(HyrloError, match="for any number of samples"):
                guarantee.samples(epsilon, reading)
            continue
        needed = guarantee.samples(epsilon, reading)
        fewer = {phase: max(1, math.floor(0.99 * count) - 1) for phase, count in needed.items()}
        assert guarantee.error(needed, reading) <= epsilon * (1 + 1e-6)
        assert guarantee.error(fewer, reading) > epsilon or min(needed.values()) == 1


def test_a_rate_worked_out_by_hand():
    rate = Rate(root=3, linear=4, floor=0.5)
    assert rate.error(16) == 3 / 4 + 4 / 16 + 0.5
    assert rate.samples(1.5) == 16
    assert Rate(root=3).samples(0.03) == 10_000


# |F| = |Π| = e and δ = 1/e make every printed logarithm a whole number.
SMALL = BoundInputs(
    horizon=2, actions=4, coverage=3.0, rank=5.0, log_functions=1.0, delta=math.exp(-1), v_max=1.0, gamma=0.5
)


def test_table_1_worked_out_by_hand():
    """C² H⁴ A log / ε² per step, H of them."""
    per_step = 9 * 16 * 4 / 0.5**2
    assert GUARANTEES["hyq"](SMALL).samples(0.5) == {"online": 2 * 5 * per_step}
    assert GUARANTEES["psdp"](SMALL).samples(0.5) == {"backward": 2 * per_step}
    assert GUARANTEES["foobar"](SMALL).samples(0.5) == {"forward": 3 * per_step, "backward": 2 * per_step}
    assert GUARANTEES["foobar"](SMALL).total({"forward": 30, "backward": 20}) == 100
    assert GUARANTEES["hyq"](replace(SMALL, coverage_bellman=6.0)).samples(0.5) == {"online": 4 * 2 * 5 * per_step}


def test_theorem_5_1_worked_out_by_hand():
    """L = ln(2 |F| A |Π| / δ) = 3 + ln 8; T = A N = 400."""
    log = 3 + math.log(8)
    one_step = 8 * math.sqrt(2 * 4 * log / 100) + 16 * 4 * log / 100 + math.sqrt(16 / 400)
    assert GUARANTEES["fail"](SMALL).error(100) == pytest.approx(2 * one_step)
    few_rounds = 8 * math.sqrt(2 * 4 * log / 100) + 16 * 4 * log / 100 + math.sqrt(16 / 25)
    assert GUARANTEES["fail"](replace(SMALL, rounds=25)).error(100) == pytest.approx(2 * few_rounds)
    log += math.log(2)  # a δ for each of two steps; witnesses up to V_max = 7
    proved = 8 * math.sqrt(2 * 4 * log / 100) + 16 * 4 * log / 100 + math.sqrt(16 / 400)
    assert GUARANTEES["fail"](replace(SMALL, v_max=7.0)).error(100, "proved") == pytest.approx(2 * 7 * proved)


def test_the_proof_of_theorem_5_2_worked_out_by_hand():
    """C (Σ_h 2 ε_back + Σ_h h ε_for), half of δ for each pass, H steps in each."""
    backward = math.sqrt(22 * 7**2 * 4 * (1 + 1 + math.log(2 * 2)) / 100)
    log = 2 + 1 + 1 + math.log(2 * 2 * 2 * 2)  # |F|² |Π| / δ; the lemma's 2, both signs, both passes, both steps
    forward = 7 * (8 * math.sqrt(2 * 4 * log / 100) + 16 * 4 * log / 100 + math.sqrt(4 / 100))
    guarantee = GUARANTEES["foobar"](replace(SMALL, v_max=7.0))
    assert guarantee.error(100, "proved") == pytest.approx(3 * (2 * 2 * backward + (1 + 2) * forward))
    alone = math.sqrt(22 * 7**2 * 4 * (1 + 1 + math.log(2)) / 100)
    for name in ("psdp", "psdp-trace"):
        assert GUARANTEES[name](replace(SMALL, v_max=7.0)).error(100, "proved") == pytest.approx(3 * 2 * 2 * alone)


def test_the_stationary_theorems_worked_out_by_hand():
    problem = replace(SMALL, ipm=0.1, bellman_error=0.2)
    assert GUARANTEES["cpi"](problem).error(400) == pytest.approx(3 * 4 * 2 * math.sqrt(4 / 400) + 3 * 2 * 0.1)
    log = 3 + math.log(8)
    inter = 2 * (8 * math.sqrt(2 * 16 * log / 100) + 0.2)
    assert GUARANTEES["inter-fail"](problem).error(100) == pytest.approx(inter)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("horizon", 0, "horizon is 0"),
        ("actions", -1, "actions is -1"),
        ("coverage", 0.0, "coverage is 0.0"),
        ("coverage", math.inf, "give a finite number"),
        ("delta", 1.0, "delta is 1.0"),
        ("delta", math.nan, "delta is nan"),
        ("gamma", 1.0, "gamma is 1.0"),
        ("log_functions", -1.0, "log_functions is -1.0"),
        ("v_max", 0.0, "v_max is 0.0"),
        ("rounds", 0, "rounds is 0"),
    ],
)
def test_nonsense_is_refused(field, value, message):
    with pytest.raises(HyrloError, match=message):
        BoundInputs(**{field: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "either a target error"),
        ("--epsilon 0.1 --samples 5", "either a target error"),
        ("--epsilon 0", "epsilon is 0"),
        ("--epsilon nan", "epsilon is nan"),
        ("--samples 0", "samples is 0"),
        ("--epsilon 0.1 --delta 2", "delta is 2"),
        ("fail --epsilon 0.1 --rounds 10", "for any number of samples"),
        ("nothing --epsilon 0.1", "invalid choice 'nothing'"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(options, message, capsys):
    assert main(["bound", *options.split()]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert said.err.count("\n") == 1


def test_the_command_prints_the_calculators_numbers(capsys):
    asked = "--horizon 10 --actions 4 --coverage 3 --log-functions 7 --rank 2"
    problem = BoundInputs(horizon=10, actions=4, coverage=3.0, log_functions=7.0, rank=2.0)
    assert main(["bound", "--epsilon", "0.5", "--json", *asked.split()]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in said["bounds"]] == list(TABLE_1)
    assert said["bounds"][0]["proved"] is None
    assert said["problem"]["log_functions"] == 7
    for one in said["bounds"]:
        guarantee = GUARANTEES[one["name"]](problem)
        assert one["printed"]["samples"] == guarantee.samples(0.5)
        assert one["printed"]["total"] == 10 * sum(guarantee.samples(0.5).values())
    assert main(["bound", "foobar", "--samples", "1000", *asked.split()]) == 0
    table = capsys.readouterr().out
    for reading in READINGS:
        assert f"{GUARANTEES['foobar'](problem).error(1000, reading):.4g} > V_max" in table
