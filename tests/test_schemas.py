"""What is read from a run directory is typed: whatever its JSON files hold, the answer is one line that names the field."""

import json
import os
import shutil

import gymnasium
import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hyrlo
from hyrlo.core import strict_json
from hyrlo.core.errors import HyrloError
from hyrlo.core.files import read_json, write_json
from hyrlo.core.networks import MLP
from hyrlo.core.policies import Greedy, LatentTable, Mixture, Softmax, Stack, Uniform, UniformBox, switch
from hyrlo.runs.fit import action_counts, misfit, other_horizon
from hyrlo.runs.loading import load_run
from hyrlo.runs.schema import check_header, check_line, check_result
from hyrlo.runs.sessions import changes_since
from tests.test_cli import one_line_error, run, train_small
from tests.test_render import save_run
from tests.walks import message, small_data

H, STATES = 6, 16  # of the lock
SCORES = {"algo": "fail", "env": "lock", "seed": 0, "horizon": H, "episodes": 1, "steps": 6, "return_mean": 0.5,
          "success_rate": None, "eval_episodes": 5, "wall_seconds": 1.5}  # fmt: skip
LINE = {
    "phase": "forward",
    "horizon": 0,
    "episodes": 1,
    "steps": 1,
    "return_mean": 0.5,
    "success_rate": 0.5,
    "seconds": 1.0,
}


def network(actions=10, inputs=STATES):
    return Softmax(MLP.create(jax.random.key(0), (inputs, actions)))


def lock_run(path, policy=None, **fields):
    """A run of the lock, with some fields of its config replaced."""
    save_run(
        path,
        "lock",
        H,
        policy or Stack.repeat(network(), H),
        **({"actions": 10} if "env_options" not in fields else {}),
    )
    write_json(path / "config.json", {**read_json(path / "config.json"), "actions": 10, **fields})
    return path


ODD_FIELDS = [
    ("env", [3, None, [], {}, True, "", "nothing", "gym:", "gym:No-v0", "gym:\x1b[31mX-v0", "custom:Mine", "lock\x00"]),
    ("env_options", [None, [], "x", 3, {"nope": 1}, {"noise": "x"}, {"noise": None}, {"actions": [10]}, {"seed": -1}]),
    ("env_options", [{"behaviour": 3}, {"actions": 2**40}, {"anti_reward": True}, {"noise": {}}, {"actions": 5}]),
    ("horizon", [None, 0, -1, 2**40, True, "6", [], {}, 6.5, 7, 5, 10**25]),
    ("seed", ["0", None, -1, 1.5, [], 2**70, False]),
    ("algo", [3, None, [], {}]),
    ("actions", [-1, "10", 2**40, 9, 11, None]),
    ("config", [[], 3, None]),
    ("data", [3, {"fingerprint": 3}, {"source": []}]),
    ("roll_in", [3, {"fingerprint": 3}]),
    ("versions", [[], {"jax": 3}]),
    ("code", [3, {"commit": 3}, {"dirty": "no"}]),
    ("machine", [3, {"cores": [1]}]),
    ("resumed_with", [3, [3], [{"code": 3}]]),
    ("curve_episodes", [0, "5"]),
]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in ODD_FIELDS for value in values])
def test_no_value_of_a_config_reaches_the_world_unchecked(name, value, tmp_path, capsys):
    path = lock_run(tmp_path / "run", **{name: value})
    assert run("eval", path, "--episodes", 2) == 2
    error = one_line_error(capsys)
    assert str(path) in error
    assert name in error
    assert "\x1b" not in error


def test_the_config_that_the_odd_ones_were_made_from_is_fine(tmp_path, capsys):
    assert run("eval", lock_run(tmp_path / "run"), "--episodes", 2) == 0


BROKEN = {
    "is not UTF-8": b'{"env": "l\xffck"}',
    "NaN": b'{"horizon": NaN}',
    "Infinity": b'{"horizon": -Infinity}',
    "not finite": b'{"horizon": 1e999}',
    "twice": b'{"env": "lock", "env": "hammer-binary"}',
    "levels deep": b'{"config": ' + b"[" * 200 + b"]" * 200 + b"}",
    "digits": b'{"seed": ' + b"1" * 5000 + b"}",
    "surrogate": b'{"env": "\\ud800"}',
    "line 1": b"",
    "Expecting": b"{'env': 3}",
    "BOM": b'\xef\xbb\xbf{"env": "lock"}',
}


@pytest.mark.parametrize("said", BROKEN)
def test_json_that_means_two_things_or_none_is_one_line(said, tmp_path, capsys):
    path = lock_run(tmp_path / "run")
    (path / "config.json").write_bytes(BROKEN[said])
    with pytest.raises(ValueError, match=said):
        strict_json.parse(BROKEN[said])
    assert run("eval", path, "--episodes", 2) == 2
    assert "config.json: cannot be read (" in one_line_error(capsys)


def test_nesting_beyond_all_limits_is_no_crash():
    for content in (b"[" * 10**6, b'{"a":' * 10**5 + b"1" + b"}" * 10**5):
        with pytest.raises(ValueError, match=r"levels deep|Expecting"):
            strict_json.parse(content)


def test_a_folder_or_a_pipe_is_no_file(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        assert f"{name}: is not a file" in message(lambda name=name: read_json(tmp_path / name))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.just(2**40) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
FIELDS = sorted({name for name, _ in ODD_FIELDS} | {"env_options.actions", "env_options.noise", "env_options.seed"})


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FIELDS), JSON)
def test_any_value_in_any_field_is_an_error_of_ours_or_none(tmp_path, field, value):
    path = tmp_path / "run"
    if not path.exists():
        lock_run(path)
        shutil.copy(path / "config.json", tmp_path / "kept.json")
    config = read_json(tmp_path / "kept.json")
    outer, _, inner = field.partition(".")
    config[outer] = {**config[outer], inner: value} if inner else value
    write_json(path / "config.json", config)
    try:
        world, _, _ = load_run(path)
    except HyrloError as error:
        said = str(error)
    else:
        said = ""
        assert (world.spec.horizon, world.spec.actions) == (H, 10)
    assert "\n" not in said
    assert len(said) < 500


@pytest.mark.parametrize("name", sorted(SCORES))
@pytest.mark.parametrize("value", ["x", [], {}, -1, 2**70, True, None])
def test_a_result_is_typed(name, value, tmp_path):
    legal = (name in ("algo", "env") and value == "x") or (name == "success_rate" and value is None)
    if legal or (name == "return_mean" and value in (-1, 2**70)) or (name == "wall_seconds" and value == 2**70):
        return
    said = message(lambda: check_result(tmp_path / "result.json", {**SCORES, name: value}))
    assert said.startswith(f"{tmp_path / 'result.json'}: {name} is ")
    assert "missing" in message(lambda: check_result(tmp_path, {k: v for k, v in SCORES.items() if k != name}))


def test_what_a_result_says_besides_is_typed(tmp_path):
    file = tmp_path / "result.json"
    for name, value in {"spent": {"forward": -1}, "warnings": [{}], "versions": {"jax": 3}, "chosen": []}.items():
        assert f"{file}: {name}" in message(lambda n=name, v=value: check_result(file, {**SCORES, n: v}))
    assert check_result(file, {**SCORES, "warnings": [{"what": "x", "step": 3}], "more": 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [("phase", 3), ("horizon", -1), ("episodes", "9"), ("steps", None), ("success_rate", 1.5), ("seconds", -1.0),
     ("loss", [1]), ("loss", {}), ("return_mean", "nan")],
)  # fmt: skip
def test_a_line_of_metrics_is_typed(name, value):
    assert name in message(lambda: check_line("metrics.jsonl: line 3", {**LINE, name: value}))
    assert check_line("metrics.jsonl: line 3", {**LINE, "loss": 0.25, "note": "x"})


def test_the_header_of_a_checkpoint_is_typed(tmp_path):
    header = {"finished": 2, "episodes": 3, "steps": 4, "metrics": 2, "seconds": 1.5}
    assert check_header(tmp_path, header, 3) == header
    for name, value in {"finished": 4, "episodes": -1, "steps": "4", "metrics": None, "seconds": True}.items():
        assert name in message(lambda n=name, v=value: check_header(tmp_path, {**header, n: v}, 3))
    assert "not an object" in message(lambda: check_header(tmp_path, [1], 3))


# Does it fit together


def test_every_reader_of_a_config_checks_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = save_run(tmp_path / "run", "gym:MountainCar-v0", H, Stack.repeat(network(3, 3), H))
    write_json(path / "config.json", {**read_json(path / "config.json"), "horizon": "six"})
    data = small_data(tmp_path / "d.npz", H)
    commands = [
        ("eval", path),
        ("eval", path, "--render"),
        ("data", "collect", "gym:MountainCar-v0", "--run", path, "--out", "x.npz"),
        ("diagnose", "gym:MountainCar-v0", "--data", data, "--run", path),
        ("train", "cpi", "gym:MountainCar-v0", "--horizon", H, "--roll-in", path, "--out", "new"),
    ]
    for command in commands:
        assert run(*command) == 2
        assert "config.json: horizon is 'six'; give a whole number" in one_line_error(capsys), command
    assert "horizon is 'six'" in message(lambda: hyrlo.LearnedReset(gymnasium.make("MountainCar-v0"), path))
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "x.npz").exists()


def test_a_horizon_that_was_edited_is_not_evaluated(tmp_path, capsys):
    """With a policy for every step the arrays say it; with one for all steps, the result does."""
    path = lock_run(tmp_path / "run", horizon=7)
    assert run("eval", path) == 2
    assert "config.json: horizon is 7, but the policy is for 6 steps" in one_line_error(capsys)
    path = lock_run(tmp_path / "stationary", network(), horizon=7)
    write_json(path / "result.json", SCORES)
    assert run("eval", path) == 2
    assert "horizon is 7, but 6 in result.json" in one_line_error(capsys)
    assert "policy is for 6 steps" in message(
        lambda: hyrlo.LearnedReset(gymnasium.make("MountainCar-v0"), Stack.repeat(network(3, 3), 6), horizon=7)
    )


def test_a_run_of_another_world_is_not_evaluated_in_this_one(tmp_path):
    path = lock_run(tmp_path / "run")
    assert "actions is 10, but lock has 5" in message(lambda: load_run(path, hyrlo.make("lock", H, actions=5)))
    assert "policies for 6 steps" in message(lambda: load_run(path, hyrlo.make("lock", 7)))
    assert load_run(path, hyrlo.make("lock", H))[2]["horizon"] == H


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (network(9), "is a policy for 9 actions, but lock has 10"),
        (network(10, 5), "other states or actions"),
        (Uniform(11), "for 11 actions"),
        (UniformBox(2), "other states or actions"),
        (switch(Uniform(10), at=2, to=network(12)), "for 12 actions"),
        (Mixture(network(), Greedy(network(4).network), jnp.asarray(0.5)), "for 4 actions"),
        (LatentTable(jnp.zeros((STATES + 1, 3)), jnp.ones((3, 7))), "for 7 actions"),
        (Stack.repeat(network(), 5), "for 5 steps"),
        (Stack(network(), every=0), "for 0 steps"),
    ],
)
def test_a_policy_for_other_sizes_does_not_fit(policy, said):
    spec = hyrlo.make("lock", H).spec
    assert said in (misfit(policy, spec, "lock") or "")
    assert misfit(Stack.repeat(network(), H), spec, "lock") is None


def test_how_many_steps_and_actions_a_policy_has():
    stack = Stack.repeat(network(), 6, every=4)
    assert (other_horizon(stack, 6), other_horizon(stack, 8), other_horizon(stack, 9)) == (None, None, 8)
    assert other_horizon(switch(stack, at=2, to=Uniform(10)), 4) == 8
    assert other_horizon(network(), 3) is None
    assert action_counts(switch(Uniform(3), at=1, to=Stack.repeat(network(4), 2))) == {3, 4}


# Resuming elsewhere


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run without its end."""
    path = tmp_path_factory.mktemp("schemas") / "run"
    assert train_small(path) == 0
    for name in ("result.json", "policy.json", "policy.safetensors"):
        (path / name).unlink()
    return path


def edit(path, **groups):
    """The config with some entries of `code`, `versions` or `machine` replaced."""
    config = read_json(path / "config.json")
    write_json(path / "config.json", {**config, **{name: config[name] | changes for name, changes in groups.items()}})
    return path


ELSEWHERE = [
    ({"code": {"commit": "0123456789abcdef", "dirty": False}}, "code is 0123456789 there"),
    ({"versions": {"jax": "0.1"}}, "jax is 0.1 there"),
    ({"versions": {"python": "2.7"}}, "python is 2.7 there"),
    ({"versions": {"hyrlo": "0.1.9"}}, "hyrlo is 0.1.9 there"),
    ({"machine": {"cores": 64}}, "cores is 64 there"),
    ({"machine": {"platform": "Plan9 vax"}}, "platform is Plan9 vax there"),
]


@pytest.mark.parametrize(("groups", "said"), ELSEWHERE)
def test_a_run_is_not_resumed_elsewhere(groups, said, stopped, tmp_path):
    here = read_json(stopped / "config.json")
    path = edit(shutil.copytree(stopped, tmp_path / "run"), **groups)
    line = message(lambda: changes_since(path, here, anyway=False))
    assert said in line
    assert "--anyway" in line
    assert len(changes_since(path, here, anyway=True)) == 1
    assert changes_since(stopped, here, anyway=False) == []
    write_json(path / "result.json", SCORES)
    assert changes_since(path, here, anyway=False) == []  # nothing is left to compute


def test_a_run_resumed_elsewhere_says_so(stopped, tmp_path, capsys):
    path = edit(shutil.copytree(stopped, tmp_path / "run"), machine={"cores": 64})
    before = (path / "config.json").read_bytes()
    assert train_small(path, "--resume") == 2
    assert "cores is 64 there" in one_line_error(capsys)
    assert (path / "config.json").read_bytes() == before
    assert train_small(path, "--resume", "--anyway", "--quiet") == 0
    assert "warning: was resumed with other code" in capsys.readouterr().out
    result, config = read_json(path / "result.json"), read_json(path / "config.json")
    assert result["resumed_with"] == config["resumed_with"]
    assert [session["machine"]["cores"] for session in result["resumed_with"]] == [len(os.sched_getaffinity(0))]
    assert config["machine"]["cores"] == 64
    assert any("resumed_with" in warning["what"] for warning in result["warnings"])
    (path / "result.json").unlink()  # a second session here needs no word, and the result still says it
    assert train_small(path, "--resume") == 0
    assert len(read_json(path / "result.json")["resumed_with"]) == 1


def test_a_run_that_was_not_moved_says_nothing(stopped, tmp_path, capsys):
    path = shutil.copytree(stopped, tmp_path / "run")
    assert train_small(path, "--resume") == 0
    result = json.loads((path / "result.json").read_text())
    assert "resumed_with" not in result
    assert not any("resumed" in warning["what"] for warning in result["warnings"])
    assert set(read_json(path / "config.json")["machine"]) == {"platform", "processor", "cores", "backend", "flags"}
    (path / "metrics.jsonl").write_text('{"phase": 3}\n')
    assert train_small(path, "--resume") == 2
    assert "metrics.jsonl: is not the file that this run ended with" in one_line_error(capsys)
