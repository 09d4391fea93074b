"""`--config FILE` and `--print-config`: what is printed repeats the command, and what is wrong is one line."""

import json

import pytest
import yaml

import hyrlo.cli.train
from hyrlo.cli.main import main
from tests.logs import text


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """The arguments with which a command trains, in place of training."""
    monkeypatch.chdir(tmp_path)

    def run(*argv):
        calls = []

        class Stopped(Exception):
            pass

        def train(*args, **options):
            calls.append(
                (*args[:1], args[1].name, args[1].options, options["seed"], options["config"], args[1].spec.horizon)
            )
            raise Stopped

        monkeypatch.setattr(hyrlo.cli.train, "train", train)
        with pytest.raises(Stopped):
            main(["train", *argv])
        return calls[0]

    return run


def printed(capsys, *argv):
    assert main(["train", *argv]) == 0
    return capsys.readouterr().out


def refused(capsys, *argv):
    assert main(["train", *argv]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


COMMANDS = {
    "nothing": ["foobar", "lock"],
    "options": ["foobar", "lock", "--horizon", "7", "--seed", "3", "--lock.noise", "0.2", "--forward.episodes", "50"],
    "preset": ["foobar", "lock", "--preset", "lean", "--forward.samples", "77", "--backward.fit.rounds", "1"],
    "tuned": ["foobar", "lock", "--forward.samples", "1000"],
    "variant": ["foobar", "lock", "--forward", "importance", "--discriminator", "exact"],
    "improve": ["foobar", "lock", "--improve", "sac", "--explore", "0.25"],
    "vectors": ["foobar", "gym:Pendulum-v1", "--budget", "9000", "--backward.iterations", "4", "--horizon", "10"],
    "another": ["psdp", "lock", "--preset", "paper", "--no-tensorboard"],
    "no forward": ["sac", "gym:CartPole-v1", "--gym.num-envs", "2", "--horizon", "20"],
    "stationary": ["cpi", "lock", "--improve", "cpi"],
    "none": ["fail", "lock", "--preset", "fast", "--offline-samples", "None"],
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("kind", ["yaml", "json"])
def test_what_is_printed_repeats_the_command(name, kind, asked, capsys, tmp_path, monkeypatch):
    command = COMMANDS[name]
    if "gym:Pendulum-v1" in command:
        monkeypatch.setattr(hyrlo.cli.train, "_read_data", lambda *_: None)
    file = text(tmp_path / f"a.{kind}", printed(capsys, *command, f"--print-config={kind}"))
    assert asked("--config", str(file)) == asked(*command)
    assert not (tmp_path / "runs").exists()


def test_the_command_line_comes_before_the_file(asked, tmp_path):
    text(
        tmp_path / "a.yaml",
        "algo: foobar\nenv: lock\nhorizon: 9\nseed: 1\npreset: lean\nforward: {samples: 60}\nlock: {noise: 0.2}",
    )
    algo, env, options, seed, config, horizon = asked("--config", "a.yaml", "--seed=5", "--horizon", "4")
    assert (algo, env, options["noise"], seed, horizon) == ("foobar", "lock", 0.2, 5, 4)
    assert config.forward.samples == 60
    assert asked("foobar", "lock", "--config=a.yaml", "--forward.samples", "9")[4].forward.samples == 9
    assert asked("psdp", "--config", text(tmp_path / "b.yml", "env: lock\nhorizon: 5").name)[0] == "psdp"
    assert asked("foobar", "lock-benign", "--config", "b.yml")[1] == "lock-benign"


def test_the_config_of_an_earlier_run(asked, tmp_path, capsys):
    """Its fields are defaults; what the run recorded of itself is left out."""
    made = json.loads(
        printed(capsys, "foobar", "lock", "--horizon", "5", "--forward.samples", "55", "--print-config=json")
    )
    record = {
        "format": 2, "actions": 10, "versions": {"hyrlo": "0.1"}, "code": {"version": "0.1"}, "chosen": {},
        "resumed_with": [{}],
        "data": {"source": "lock behaviour data, seed 0", "fingerprint": "a"}, "command": "hyrlo train foobar lock",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(made | record))
    assert asked("--config", "config.json") == asked("foobar", "lock", "--horizon", "5", "--forward.samples", "55")
    assert asked("--config", "config.json", "--forward.samples", "44")[4].forward.samples == 44
    (tmp_path / "config.json").write_text(
        json.dumps(made | record | {"data": {"source": "gone.npz", "fingerprint": "a"}})
    )
    assert "error: gone.npz: no such file" in refused(capsys, "--config", "config.json")
    (tmp_path / "config.json").write_text(
        json.dumps(made | record | {"command": "hyrlo train foobar lock --data other.npz"})
    )
    assert "error: other.npz: no such file" in refused(capsys, "--config", "config.json")


def test_a_config_of_others_names_no_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made = {"algo": "foobar", "env": "gym:Pendulum-v1", "env_options": {"kwargs": '{"xml_file": "/a/b.xml"}'}}
    (tmp_path / "config.json").write_text(json.dumps({**made, "format": 3}))
    said = refused(capsys, "--config", "config.json")
    assert "may name a module or file; if it should, give --gym.kwargs on the command line" in said
    given = ["--gym.kwargs", '{"xml_file": 1}', "--data", "none.npz"]
    assert "none.npz: no such file" in refused(capsys, "--config", "config.json", *given)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**made, "data": "none.npz"}))
    assert "none.npz: no such file" in refused(capsys, "--config", "run.yaml")


def test_a_roll_in_of_an_earlier_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made = json.loads(printed(capsys, "cpi", "lock", "--print-config=json")) | {"format": 2}
    (tmp_path / "config.json").write_text(json.dumps(made | {"roll_in": {"policy": "Stack", "fingerprint": "a"}}))
    assert "config.json: does not say where its roll-in is; give --roll-in DIR" in refused(
        capsys, "--config", "config.json"
    )
    assert "elsewhere" in refused(capsys, "--config", "config.json", "--roll-in", "elsewhere")
    told = {"roll_in": {"policy": "Stack"}, "command": "hyrlo train cpi lock --roll-in there"}
    (tmp_path / "config.json").write_text(json.dumps(made | told))
    assert "there" in refused(capsys, "--config", "config.json")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("algo: foobar\nenv: lock\nhorizn: 5", "a.yaml: unknown key horizn; did you mean horizon?"),
        ("algo: foobar\nenv: lock\nforward: {sample: 5}", "a.yaml: unknown key forward.sample; did you mean forward.samples?"),
        ("algo: foobar\nenv: lock\nconfig: {forward: {sampels: 5}}", "unknown key forward.sampels"),
        ("algo: fobar\nenv: lock", "unknown algorithm 'fobar'; did you mean foobar?"),
        ("env: lock", "a.yaml: names no algorithm"),
        ("algo: foobar", "a.yaml: names no environment"),
        ("algo: foobar\nenv: nowhere", "nowhere"),
        ("algo: foobar\nenv: gym:cart:Cart-v0", "gym:cart:Cart-v0 names a module to import; give it on the command line"),
        ("algo: foobar\nenv: lock\nhorizon: many", "--horizon cannot be 'many'"),
        ("algo: foobar\nenv: lock\nhorizon: 2020-01-01", "a.yaml: horizon is not a number, a text"),
        ("algo: foobar\nenv: lock\nhorizon: [[1]]", "a.yaml: horizon is not a number, a text"),
        ("algo: foobar\nenv: lock\nconfig: 5", "a.yaml: config is 5; give its fields by name"),
        ("algo: foobar\nenv: lock\nconfig: {type: SacConfig}", "a.yaml: foobar has no variant of type SacConfig"),
        ("algo: [", "a.yaml: line 1: cannot be read as YAML"),
        ("algo: &a foobar\nenv: *a", "a.yaml: line 2: cannot be read as YAML (aliases"),
        ("!!python/object/apply:os.system ['true']", "cannot be read as YAML"),
        ("- 1", "a.yaml: is not a list of options by name"),
        ("", "a.yaml: is not a list of options by name"),
        ("\x00", "cannot be read as YAML"),
        ("[" * 5000, "cannot be read as YAML"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_one_line(content, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text(tmp_path / "a.yaml", content)
    assert said in refused(capsys, "--config", "a.yaml")


def test_other_refusals(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "none.yaml: no such file" in refused(capsys, "--config", "none.yaml")
    assert "is a folder; give its config.json" in refused(capsys, "--config", ".")
    text(tmp_path / "a.json", "{")
    assert "a.json: cannot be read as JSON" in refused(capsys, "--config", "a.json")
    assert "is given twice" in refused(capsys, "--config", "a.json", "--config", "a.json")
    assert "--print-config=toml: give yaml or json" in refused(capsys, "foobar", "lock", "--print-config=toml")
    text(tmp_path / "a.yaml", " " * 2**21)
    assert "larger than a config" in refused(capsys, "--config", "a.yaml")


def test_what_is_printed_is_yaml_in_the_order_of_the_command(capsys):
    shown = printed(capsys, "foobar", "lock", "--seeds", "2", "--print-config")
    settings = yaml.safe_load(shown)
    assert list(settings) == ["algo", "env", "env_options", "horizon", "seed", "seeds", "config"]
    assert settings["seeds"] == 2
