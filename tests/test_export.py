"""`hyrlo export`: the same actions without JAX, as ONNX and as a file that needs NumPy alone."""

import json
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten

import hyrlo
from hyrlo.core.networks import MLP, LatentQ, LatentView, LayerNormMLP, OptimisticQ, Whitened
from hyrlo.core.policies import (
    Blend,
    Gaussian,
    Greedy,
    LatentSoftmax,
    LatentTable,
    Mixture,
    MostLikely,
    Policy,
    Softmax,
    SquashedGaussian,
    Stack,
    Switch,
    ThroughView,
    Uniform,
    UniformBox,
    switch,
)
from hyrlo.core.serialize import MODULES
from hyrlo.core.whitening import Whitening
from hyrlo.envs.world import World
from hyrlo.runs import numpy_policy
from hyrlo.runs.agent import Agent
from hyrlo.runs.graph import NETWORKS, POLICIES
from hyrlo.runs.numpy_policy import NumpyPolicy
from tests.gym_envs import Spaces
from tests.test_agent import message
from tests.test_cli import one_line_error, run
from tests.test_render import save_run

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
SIZE, ACTIONS, HORIZON = 5, 4, 6


class Vectors(World):
    """A world of which only the sizes matter."""

    name = "vectors"

    def __init__(self, action_size=0):
        self.size = action_size

    @classmethod
    def create(cls, name, horizon, config):
        return cls()

    @property
    def spec(self):
        return hyrlo.core.access.Spec(HORIZON, SIZE, 0 if self.size else ACTIONS, self.size)

    def trace_model(self):
        raise NotImplementedError


def random(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def stacked(make, n):
    return jax.tree.map(lambda *x: jnp.stack(x), *(make(seed) for seed in range(n)))


def mlp(outputs, seed=0, inputs=SIZE):
    net = MLP.create(jax.random.key(seed), (inputs, 16, 16, outputs))
    return MLP(net.weights, tuple(0.1 * random(b.shape, seed + 7) for b in net.biases))


def whitened(outputs, seed=0):
    net = LayerNormMLP.create(jax.random.key(seed), (SIZE, 16, 16, outputs))
    return Whitened.create(net, Whitening(random(SIZE, 1), 0.1 + random(SIZE, 2) ** 2))  # clips some


def latent_q(seed=0, rows=SIZE + 1):
    return LatentQ(3 * random((rows, 3), seed), random((3, ACTIONS), seed + 1), random((), seed + 2))


def optimistic_q(seed=0):
    half = random((ACTIONS, 3, 3), seed)
    return OptimisticQ(
        random((SIZE, 3), seed),
        jnp.asarray(2.0),
        random((ACTIONS, 3), 1),
        half @ half.mT,
        jnp.asarray(0.3),
        jnp.asarray(1.0),
    )


def blend(seed):
    return Blend(stacked(lambda i: Greedy(mlp(ACTIONS, 9 * seed + i)), 3), jnp.array([0.4, 0.3, 0.2]), ACTIONS)


VIEW = LatentView(2 * random((HORIZON + 1, SIZE + 1, 3)))
VECTORS = {
    "squashed": SquashedGaussian(mlp(6)),
    "whitened": SquashedGaussian(whitened(6)),
    "gaussian": Gaussian(whitened(3), jnp.zeros(3)),
    "box": UniformBox(3),
    "vector stack": Stack(stacked(lambda seed: Gaussian(mlp(3, seed), jnp.zeros(3)), 2), every=4),
    "vector switch": switch(Gaussian(mlp(3), jnp.zeros(3)), at=3, to=SquashedGaussian(whitened(6))),
    "relu": SquashedGaussian(LayerNormMLP.create(jax.random.key(0), (SIZE, 8, 6), normalise=False)),
}
DISCRETE = {
    "softmax": Softmax(mlp(ACTIONS)),
    "latent softmax": LatentSoftmax(random((SIZE + 1, 3)), mlp(ACTIONS, inputs=3)),
    "latent table": LatentTable(3 * random((SIZE + 1, 3)), jax.nn.softmax(random((3, ACTIONS), 3))),
    "greedy": Greedy(mlp(ACTIONS)),
    "latent q": Greedy(latent_q()),
    "latent q without offset": Greedy(latent_q(rows=SIZE)),
    "optimistic q": Greedy(optimistic_q()),
    "plan": Stack(stacked(lambda seed: Greedy(latent_q(seed)), HORIZON)),
    "stack of networks": Stack(stacked(lambda seed: Softmax(mlp(ACTIONS, seed)), 3), every=2),
    "blends": Stack(stacked(lambda seed: blend(seed), HORIZON)),
    "view": ThroughView(Softmax(mlp(ACTIONS, 3, inputs=VIEW.size)), VIEW),
    "switch": switch(Stack(stacked(lambda s: Greedy(latent_q(s)), HORIZON)), at=2, to=Greedy(mlp(ACTIONS))),
    "mixture": Mixture(Softmax(mlp(ACTIONS)), Softmax(mlp(ACTIONS, 1)), jnp.asarray(0.7)),
    "other mixture": Mixture(Softmax(mlp(ACTIONS)), Softmax(mlp(ACTIONS, 1)), jnp.asarray(0.5)),
    "likely": MostLikely(Softmax(mlp(ACTIONS))),
    "uniform": Uniform(ACTIONS),
}  # fmt: skip


def both(agent, tmp_path):
    """Functions of flat observations and a step that return the actions of the two files."""
    npz, file = (
        hyrlo.export(agent, to, tmp_path / f"policy.{end}") for to, end in (("numpy", "npz"), ("onnx", "onnx"))
    )
    session, exported = ort.InferenceSession(file, providers=["CPUExecutionProvider"]), NumpyPolicy(npz)
    names = {value.name for value in session.get_inputs()}
    assert (names == {"observation", "step"}) == exported.needs_step
    assert {value.name for value in session.get_outputs()} == {"action"}

    def run_onnx(states, h):
        given = {"observation": states.astype(np.float32), "step": np.asarray(h, np.int64)}
        return session.run(["action"], {name: given[name] for name in names})[0]

    return {"numpy": exported, "onnx": run_onnx}


@pytest.mark.parametrize("name", [*VECTORS, *DISCRETE])
def test_actions_are_equal(name, tmp_path):
    policy = (VECTORS | DISCRETE)[name]
    agent = Agent(policy, Vectors(3 if name in VECTORS else 0))
    states = 2 * np.asarray(random((60, SIZE), 5))
    files, seen = both(agent, tmp_path), []
    for h in range(HORIZON):
        expected = agent.predict(states, step=h)
        for act in files.values():
            found = act(states, h)
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, atol=1e-6 if name in VECTORS else 0)
        one = files["numpy"](states[0], h)
        np.testing.assert_allclose(one, expected[0], atol=1e-6)
        assert isinstance(one, int) == (name in DISCRETE)
        seen.append(expected)
    if "uniform" not in name and name != "box":
        assert len(np.unique(seen[0], axis=0)) > 1, "the test compares constants"
    depends = any(not np.array_equal(seen[0], other) for other in seen)
    assert depends == files["numpy"].needs_step


def test_every_policy_and_network_that_can_be_saved_is_known():
    """A new class needs a rule in `graph.py`, or a line here."""
    acting = {cls for cls in MODULES.values() if cls.__module__ == "hyrlo.core.policies"} - {Policy}
    assert acting == set(POLICIES)
    values = {cls for cls in MODULES.values() if cls.__module__ == "hyrlo.core.networks"}
    assert {cls.__name__ for cls in values - set(NETWORKS)} == {"Dynamics", "LatentView"}


@pytest.mark.parametrize("observations", ["dict", "tuple", "discrete", "picture"])
@pytest.mark.parametrize("actions", ["discrete", "box", "whole", "many"])
def test_files_speak_the_environment_s_language(observations, actions, tmp_path):
    world = hyrlo.make(lambda: Spaces(observations, actions), 3, num_envs=1)
    spec = world.spec
    net = MLP.create(jax.random.key(1), (spec.observation_size, spec.action_size or spec.actions))
    agent = Agent(Gaussian(net, jnp.zeros(spec.action_size)) if spec.action_size else Softmax(net), world)
    space = agent.observation_space
    space.seed(0)
    files = both(agent, tmp_path)
    for sample in (space.sample() for _ in range(5)):
        expected = agent.predict(sample)
        assert agent.action_space.contains(expected)
        np.testing.assert_allclose(files["numpy"](sample), expected, atol=1e-6)
        flat = np.asarray(flatten(space, sample), np.float32)[None]
        np.testing.assert_allclose(files["onnx"](flat, 0)[0], expected, atol=1e-6)


def test_the_numpy_file_needs_numpy_alone(tmp_path):
    """The copied loader, in a process where only NumPy can be imported."""
    agent = Agent(DISCRETE["plan"], Vectors())
    hyrlo.export(agent, "numpy", tmp_path / "policy.npz")
    shutil.copy(numpy_policy.__file__, tmp_path / "loader.py")
    code = """
import sys
before = set(sys.modules)
import loader
policy = loader.NumpyPolicy("policy.npz")
print(policy([[1.0] * 5, [-2.0] * 5], step=3).tolist())
print(sorted({name.split(".")[0] for name in sys.modules if name not in before} - sys.stdlib_module_names))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    actions, modules = done.stdout.splitlines()
    assert json.loads(actions) == agent.predict(np.array([[1.0] * 5, [-2.0] * 5]), step=3).tolist()
    assert modules == "['loader', 'numpy']"
    code = "import sys, hyrlo; hyrlo.NumpyPolicy; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_steps_that_are_missing_or_unknown_are_refused(tmp_path):
    policy = NumpyPolicy(hyrlo.export(Agent(DISCRETE["plan"], Vectors()), "numpy", tmp_path / "policy.npz"))
    for step in (None, -1, HORIZON):
        with pytest.raises(ValueError, match="needs a step from 0 to 5"):
            policy(np.zeros(SIZE), step)
    assert type(policy(np.zeros(SIZE), HORIZON - 1)) is int
    with pytest.raises(ValueError, match=r"has shape \(3,\)"):
        policy(np.zeros(3), 0)


def test_equal_policies_give_equal_bytes_and_say_what_they_are(tmp_path):
    agent = Agent(DISCRETE["plan"], Vectors(), about={"algo": "foobar", "seed": 3})
    for to, end in (("numpy", "npz"), ("onnx", "onnx")):
        first, again = (hyrlo.export(agent, to, tmp_path / f"{i}.{end}").read_bytes() for i in range(2))
        assert first == again
    about = NumpyPolicy(tmp_path / "0.npz").about
    assert (about["algo"], about["seed"], about["horizon"], about["hyrlo"]) == ("foobar", 3, HORIZON, hyrlo.__version__)
    properties = {p.key: json.loads(p.value) for p in onnx.load(tmp_path / "0.onnx").metadata_props}
    assert properties["hyrlo"] == {name: value for name, value in about.items() if name != "nodes"}


def test_the_command_exports_a_run(tmp_path, capsys):
    size = hyrlo.make("gym:CartPole-v1").spec.observation_size
    path = save_run(tmp_path / "run", "gym:CartPole-v1", 5, Softmax(mlp(2, inputs=size)))
    states = np.asarray(random((20, size - 1), 4))
    for to, end in (("numpy", "npz"), ("onnx", "onnx")):
        assert run("export", path, "--to", to, "--out", tmp_path / f"p.{end}") == 0
        assert f"p.{end}" in capsys.readouterr().out
    np.testing.assert_array_equal(NumpyPolicy(tmp_path / "p.npz")(states), hyrlo.load(path).predict(states))
    for argv, said in (
        (["--to", "onnx", "--out", tmp_path / "p.npz"], "ends with .onnx"),
        (["--to", "numpy", "--out", tmp_path / "no" / "p.npz"], "there is no folder"),
        (["--to", "torch", "--out", tmp_path / "p.npz"], "--to"),
        (["--to", "onnx"], "--out"),
    ):
        assert run("export", path, *argv) == 2
        assert said in one_line_error(capsys)
    assert run("export", "--help") == 0


class Own(Policy):
    def act(self, key, observations, h):
        return jnp.zeros(len(observations), int)


def test_what_cannot_be_exported_is_one_line(tmp_path, monkeypatch):
    line = message(
        hyrlo.export, Agent(Mixture(Uniform(4), Own(), jnp.asarray(0.5)), Vectors()), "numpy", tmp_path / "p.npz"
    )
    assert line.startswith("export: Own cannot be exported")
    rows = Switch(Uniform(4), Uniform(4), jnp.array([1]))
    assert "switches at a step of its own" in message(hyrlo.export, Agent(rows, Vectors()), "numpy", tmp_path / "p.npz")
    monkeypatch.setitem(sys.modules, "onnx", None)
    line = message(hyrlo.export, Agent(Uniform(4), Vectors()), "onnx", tmp_path / "p.onnx")
    assert "pip install 'hyrlo[onnx]'" in line
    assert not list(tmp_path.iterdir())


def test_spaces_of_a_world_without_an_environment_follow_from_its_sizes():
    assert Vectors(3).spaces == (spaces.Box(-np.inf, np.inf, (SIZE,)), spaces.Box(-1, 1, (3,)))
    assert Vectors().spaces[1] == spaces.Discrete(ACTIONS)
