"""Nonsense in a config is refused by the name of its field, before any work."""

import dataclasses
import itertools
import math
import pickle
import types
import typing
from typing import Annotated

import pytest

import hyrlo
from hyrlo.core.errors import HyrloError
from hyrlo.core.ranges import MOST_WHOLE, OptionError, Options, Range, hints_of, read_options
from hyrlo.core.variants import PRESETS, Choice
from hyrlo.diagnostics import DiagnoseConfig
from hyrlo.envs.registry import ENVIRONMENTS
from hyrlo.forward import witness
from hyrlo.forward.variants import ESTIMATORS
from hyrlo.forward.witness import DISCRIMINATORS
from hyrlo.runs.algorithms import ALGORITHMS
from hyrlo.theory.bounds import BoundInputs
from tests.test_cli import one_line_error, run
from tests.walks import message

ODD = (-1, 0, math.nan, math.inf, -math.inf, 1e30, 1e39, 2**31, 2**40, True, "3", None, [1], {})


def choices():
    """Every combination of what decides a variant; those that an algorithm does not have are errors."""
    forward, improve = (None, *ESTIMATORS), (None, "plan", "psdp", "sac", "cpi")
    for preset, f, i, explore, vectors in itertools.product(
        (None, *PRESETS), forward, improve, (None, 0.5), (False, True)
    ):
        yield Choice(preset, f, i, None, explore, vectors)
    for discriminator in DISCRIMINATORS:
        yield Choice(discriminator=discriminator)


def parts(config):
    """A config and the configs in it."""
    yield config
    for field in dataclasses.fields(config):
        if dataclasses.is_dataclass(value := getattr(config, field.name)):
            yield from parts(value)


def every_config():
    """One config of every class that a run, an environment or a diagnosis can have."""
    found = {}
    roots = [DiagnoseConfig(), BoundInputs()]
    roots += [kind() for environment in ENVIRONMENTS.values() if (kind := environment.config_class())]
    roots += [witness.Mmd(), witness.ExactMmd(), witness.RandomValues(), witness.ValueNetwork()]
    for algorithm, choice in itertools.product(ALGORITHMS.values(), choices()):
        try:
            roots.append(algorithm.config(choice))
        except HyrloError:
            continue
    for config in roots:
        for part in parts(config):
            found[type(part)] = part
    return sorted(found.values(), key=lambda config: type(config).__name__)


CONFIGS = every_config()


def legal(value, hint):
    """Whether a number is in the range that the field documents; written apart from the code that checks it."""
    if typing.get_origin(hint) is Annotated:
        kind, bounds = typing.get_args(hint)
        if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float) or value != value:
            return False
        low = bounds.low < value if bounds.above else bounds.low <= value
        return low and (value < bounds.high if bounds.below else value <= bounds.high)
    if typing.get_origin(hint) is not None:
        return any(legal(value, one) for one in typing.get_args(hint))
    return hint is type(None) and value is None


def members(hint):
    """The members of a union, or the annotation itself."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def numeric(config):
    """The fields that hold numbers, each with its annotation."""
    for name, hint in hints_of(type(config)).items():
        kinds = [typing.get_args(one)[0] if typing.get_origin(one) is Annotated else one for one in members(hint)]
        if int in kinds or float in kinds:
            yield name, hint


def test_every_kind_of_config_is_found():
    names = {type(config).__name__ for config in CONFIGS}
    assert {
        "FoobarConfig",
        "VectorModelConfig",
        "RlpdConfig",
        "BrieeConfig",
        "LatentSgd",
        "MlpSgd",
        "GymConfig",
    } <= names
    assert {"HyqProjectionConfig", "InterFailConfig", "DensityConfig", "ExploringFoobarConfig", "TestConfig"} <= names
    assert len(names) > 35
    assert all(isinstance(config, Options) for config in CONFIGS)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_no_field_takes_a_number_that_it_does_not_document(config):
    for name, hint in numeric(config):
        ranges = [one for one in members(hint) if typing.get_origin(one) is Annotated]
        assert ranges, f"{name} declares no range"
        for value in ODD:
            if legal(value, hint):
                assert_only_a_relation_is_refused(config, name, value)
                continue
            with pytest.raises(OptionError) as caught:
                dataclasses.replace(config, **{name: value})
            line = str(caught.value)
            assert line.startswith(f"{name} is "), line
            assert "\n" not in line
            assert len(line) < 200


def assert_only_a_relation_is_refused(config, name, value):
    """A legal number may not go with the other fields; that is another error of one line."""
    try:
        made = dataclasses.replace(config, **{name: value})
    except HyrloError as error:
        refused = error
    else:
        assert getattr(made, name) is value
        return
    assert not isinstance(refused, OptionError)
    assert "\n" not in str(refused)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_the_ranges_themselves_are_sane(config):
    """Whole numbers fit into 32 bits, except seeds; nothing counts below zero; learning rates are above zero."""
    for name, hint in numeric(config):
        for one in members(hint):
            if typing.get_origin(one) is Annotated:
                kind, bounds = typing.get_args(one)
                assert isinstance(bounds, Range)
                if kind is int:
                    assert bounds.low >= 0
                    assert name == "seed" or bounds.high == MOST_WHOLE
                if "learning_rate" in name and name != "last_learning_rate":
                    assert bounds.above
                    assert bounds.low == 0
                if "share" in name and kind is float:
                    assert (bounds.low, bounds.high) == (0, 1)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("sac lock --gamma=-1", "--gamma is -1.0"),
        ("sac lock --gamma 1.5", "--gamma is 1.5; give a number from 0 to 1"),
        ("sac lock --average=-1", "--average is -1.0"),
        ("sac lock --average 1", "--average is 1.0; give a number from 0 to below 1"),
        ("sac lock --learning-rate 0", "--learning-rate is 0.0; give a finite number above 0"),
        ("sac lock --learning-rate nan", "--learning-rate is nan"),
        ("sac lock --replay 4294967296", "--replay is 4294967296; give a whole number from 1 to 2147483647"),
        ("psdp lock --fit.decay=-1", "--fit.decay is -1.0"),
        ("briee lock --bonus=-1", "--bonus is -1.0"),
        ("briee lock --latents=0", "--latents is 0"),
        ("foobar lock --explore=-0.5", "--explore is -0.5"),
        ("foobar lock --budget=-5", "--budget is -5"),
        ("foobar lock --seed -1", "--seed is -1"),
        ("foobar lock --seed 99999999999999999999999", "--seed is 99999999999999999999999"),
        ("foobar lock --seeds 0", "--seeds is 0"),
        ("foobar lock --seeds 99999999999", "--seeds is 99999999999"),
        ("foobar lock --horizon 0", "horizon is 0"),
        ("foobar lock --horizon 99999999999", "horizon is 99999999999"),
        ("foobar lock --eval-episodes 2147483648", "--eval-episodes is 2147483648"),
        ("foobar lock --curve-episodes 0", "--curve-episodes is 0"),
        ("foobar lock --lock.actions 1", "--lock.actions is 1"),
    ],
)
def test_nonsense_on_the_command_line_is_refused_by_name(argv, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    algo, env, *options = argv.split()
    assert run("train", algo, env, *([] if "--horizon" in options else ["--horizon", "3"]), *options) == 2
    assert said in one_line_error(capsys)
    assert not list(tmp_path.iterdir())


def test_nonsense_in_python_is_refused_by_name():
    assert message(lambda: hyrlo.config("sac", gamma=2)).startswith("gamma is 2; give a number from 0 to 1")
    assert message(lambda: hyrlo.config("foobar", backward=5)).startswith("backward is 5; give a PsdpConfig")
    assert "horizon is True" in message(lambda: hyrlo.make("lock", True))
    assert "horizon is 'ten'" in message(lambda: hyrlo.make("lock", "ten"))
    assert "asynchronous is 'yes'" in message(lambda: hyrlo.make("gym:CartPole-v1", asynchronous="yes"))
    assert "seed is 'x'" in message(lambda: hyrlo.train("sac", "lock", seed="x"))
    assert "eval_episodes is 0" in message(lambda: hyrlo.train("sac", "lock", eval_episodes=0))


def test_values_of_a_file_are_named_with_the_file():
    kind = type(hyrlo.config("distil"))
    assert read_options(kind, {"episodes": 3}, "f.json").episodes == 3
    assert message(lambda: read_options(kind, {"episodes": [3]}, "f.json")).startswith(
        "f.json: episodes is [3]; give a wh"
    )
    assert "no option 'epsodes'; did you mean episodes?" in message(
        lambda: read_options(kind, {"epsodes": 3}, "f.json")
    )


def test_an_error_survives_its_way_out_of_a_worker_process():
    with pytest.raises(OptionError) as caught:
        hyrlo.config("distil", hidden=-1)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.field) == (str(caught.value), "hidden")
