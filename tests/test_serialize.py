"""Policies of a user's own are saved and loaded once they are registered."""

import json
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyrlo
from hyrlo.core import serialize
from hyrlo.core.files import checksum_of, write_json
from hyrlo.core.networks import MLP, LatentView, LayerNormMLP, Whitened
from hyrlo.core.policies import Blend, Gaussian, Greedy, Mixture, Softmax, Stack, Switch, ThroughView, Uniform
from hyrlo.core.tensors import save_tensors
from tests.walks import message


class Threshold(hyrlo.Policy):
    """Action 1 where the first number of a state exceeds a limit."""

    limit: jax.Array

    def act(self, key, observations, h):
        return (observations[:, 0] > self.limit).astype(int)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(serialize, "MODULES", dict(serialize.MODULES))
    return hyrlo.register(Threshold)


def test_a_registered_policy_is_saved_and_loaded(registered, tmp_path):
    hyrlo.save_policy(tmp_path, Mixture(registered(jnp.asarray(0.5)), Uniform(2), jnp.asarray(0.0)))
    loaded = hyrlo.load_policy(tmp_path)
    states = jnp.array([[0.4], [0.6]])
    np.testing.assert_array_equal(loaded.act(jax.random.key(0), states, 0), [0, 1])


def test_a_policy_that_nobody_registered_is_an_error_before_anything_is_written(tmp_path):
    with pytest.raises(hyrlo.HyrloError, match=r"Threshold cannot be saved.*@hyrlo\.register"):
        hyrlo.save_policy(tmp_path / "new", Mixture(Uniform(2), Threshold(jnp.asarray(0.5)), jnp.asarray(0.5)))
    assert not (tmp_path / "new").exists()


def test_loading_without_its_code_says_what_to_do(registered, tmp_path, monkeypatch):
    hyrlo.save_policy(tmp_path, registered(jnp.asarray(0.5)))
    monkeypatch.delitem(serialize.MODULES, "Threshold")
    with pytest.raises(hyrlo.RunError, match="unknown module Threshold"):
        hyrlo.load_policy(tmp_path)


def test_names_are_taken_once(registered):
    assert hyrlo.register(registered) is registered  # again is fine: notebooks run cells twice
    other = type("Uniform", (hyrlo.Policy,), {"act": Threshold.act})
    with pytest.raises(hyrlo.HyrloError, match=r"is the name of hyrlo\.core\.policies\.Uniform"):
        hyrlo.register(other)


def gaussian():
    return Gaussian(MLP.create(jax.random.key(0), (3, 4, 2)), jnp.zeros(2))


def stack():
    return Stack.repeat(Softmax(MLP.create(jax.random.key(0), (3, 4, 2))), 5, every=2)


def blend():
    greedy = Greedy(MLP.create(jax.random.key(0), (3, 2)))
    return Blend(jax.tree.map(lambda x: jnp.stack([x, x]), greedy), jnp.array([0.5, 0.25]), 2)


def whitened():
    mlp = LayerNormMLP.create(jax.random.key(0), (3, 4, 2))
    return Switch(Softmax(Whitened(mlp, jnp.zeros(3), jnp.ones(3))), Uniform(2), jnp.asarray(1))


def latent():
    return ThroughView(Softmax(MLP.create(jax.random.key(0), (7, 2))), LatentView(jnp.zeros((4, 3, 3))))


POLICIES = {"gaussian": gaussian, "stack": stack, "blend": blend, "whitened": whitened, "latent": latent}


def at(*path):
    """The object at a path of a tree, by names of fields and numbers."""

    def find(tree):
        for name in path:
            tree = tree["tuple"][name] if isinstance(name, int) else tree["fields"][name]
        return tree

    return find


def setting(name, value, *path):
    def change(tree, tensors):
        at(*path)(tree)["fields"][name] = value

    return change


def array(name, change):
    def changed(tree, tensors):
        tensors[name] = change(tensors[name])

    return changed


def listed(tree, tensors):
    tree["fields"]["network"] = [tree["fields"]["network"]]


def deep(tree, tensors):
    inner = tree["fields"]["network"]
    for _ in range(300):
        inner = {"tuple": [inner]}
    tree["fields"]["network"] = inner


def missing_field(tree, tensors):
    del tree["fields"]["noise"]


def other_module(tree, tensors):
    tree["fields"]["network"] = {"module": "Uniform", "fields": {"actions": 2}}


def not_a_policy(tree, tensors):
    tree.update(at("network")(dict(tree)))
    tensors.pop("log_std")


HOSTILE = [
    ("stack", setting("every", 0), "every is 0"),
    ("stack", setting("every", -1), "every is -1"),
    ("stack", setting("every", 2.0), "every is 2.0"),
    ("stack", setting("every", True), "every is True"),
    ("stack", setting("every", 10**400), "every is 1000|whole number of 401 digits"),
    ("stack", setting("every", "2"), "every is 2"),
    ("stack", setting("every", None), "every is None"),
    ("stack", array("steps.network.weights.0", lambda x: x[:2]), "steps is not a stack"),
    ("stack", array("steps.network.weights.0", lambda x: x.swapaxes(1, 2)), "do not fit together"),
    ("stack", array("steps.network.weights.0", lambda x: x[..., None]), "weights.0 has shape"),
    ("stack", array("steps.network.biases.1", lambda x: x[:, :1]), "do not fit together"),
    ("whitened", setting("actions", -3, "then"), "actions is -3"),
    ("whitened", setting("actions", 2**31, "then"), "actions is 2147483648"),
    ("whitened", setting("normalise", 1, "first", "network", "network"), "normalise is 1"),
    ("whitened", array("first.network.shift", lambda x: x[:1]), "fan_in is 1 elsewhere"),
    ("whitened", array("at", lambda x: x.astype(np.float32)), "at is not an array of Int"),
    ("gaussian", array("log_std", lambda x: x[:1]), "log_std has 1 entries"),
    ("gaussian", array("log_std", lambda x: x.astype(np.int32)), "log_std is not an array of Float"),
    ("gaussian", array("log_std", lambda x: x[:0]), "log_std has shape"),
    ("gaussian", array("network.weights.1", lambda x: x.T), "do not fit together"),
    ("gaussian", lambda tree, tensors: tensors.pop("log_std"), "no module, list or array that is there"),
    ("gaussian", lambda tree, tensors: tensors.update(more=np.zeros(3)), "the arrays are others"),
    ("gaussian", setting("network", None), "the arrays are others"),
    ("gaussian", setting("network", {"tensor": 3}), "no module, list or array"),
    ("gaussian", setting("network", {"tuple": "abc"}), "no module, list or array"),
    ("gaussian", setting("network", {"module": ["MLP"], "fields": {}}), "no module, list or array"),
    ("gaussian", setting("weights", {"tuple": []}, "network"), "the arrays are others"),
    ("gaussian", listed, "no module, list or array"),
    ("gaussian", deep, "network is tuple|is nested"),
    ("gaussian", missing_field, "Gaussian has other fields"),
    ("gaussian", other_module, "the arrays are others"),
    ("gaussian", not_a_policy, "describes MLP, not a policy"),
    ("gaussian", setting("noise", "yes"), "noise is yes"),
    ("blend", array("shares", lambda x: x[:1]), "has 1 shares"),
    ("blend", setting("actions", 3), "actions is 3"),
    ("latent", array("view.encoders", lambda x: x[:, :, :2]), "do not fit together"),
]


@pytest.mark.parametrize("name", POLICIES)
def test_every_kind_of_policy_is_loaded_as_it_was(name, tmp_path):
    policy = POLICIES[name]()
    hyrlo.save_policy(tmp_path, policy)
    assert eqx.tree_equal(hyrlo.load_policy(tmp_path), policy)


@pytest.mark.parametrize(("name", "change", "said"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_structure_that_is_not_that_of_the_arrays_is_one_line(name, change, said, tmp_path):
    """Even with checksums that match: someone else may have written the files."""
    tensors = {}
    tree = serialize.describe(POLICIES[name](), tensors)
    change(tree, tensors)
    arrays = save_tensors(tmp_path / "policy.safetensors", tensors, {})
    write_json(tmp_path / "policy.json", {**tree, "arrays": arrays})
    found = message(lambda: hyrlo.load_policy(tmp_path))
    assert re.search(said, found)
    assert re.search(r"policy\.safetensors: does not hold the policy|policy\.json: cannot be read", found)
    assert len(found) < 600
    save_tensors(tmp_path / "roll_in.safetensors", tensors, {"tree": tree, "about": {}})
    assert re.search(said, message(lambda: serialize.load_tree(tmp_path / "roll_in.safetensors")))


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 10_000,
        b'{"module": 1' + b"0" * 5000 + b"}",
        b"",
        b"nul",
    ],
)
def test_json_of_any_kind_is_one_line(content, tmp_path):
    hyrlo.save_policy(tmp_path, gaussian())
    (tmp_path / "policy.json").write_bytes(content)
    assert "policy.json" in message(lambda: hyrlo.load_policy(tmp_path))


def header_of(content, change):
    """A safetensors file with another header, and the checksum that goes with it."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"]["hyrlo"] = json.dumps({"checksum": "0" * 32})
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    whole = len(text).to_bytes(8, "little") + text + content[8 + length :]
    return whole.replace(b"0" * 32, checksum_of(whole).encode(), 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["log_std"].update(shape=[2**42], data_offsets=[0, 2**44]),
        lambda header: header["log_std"].update(shape=[2**42]),
        lambda header: header["log_std"].update(shape=[-2]),
        lambda header: header["log_std"].update(shape=[2.0]),
        lambda header: header["log_std"].update(dtype="F4096"),
        lambda header: header["log_std"].update(dtype="BF16", shape=[4]),
        lambda header: header["log_std"].update(data_offsets=[4, 12]),
        lambda header: header.pop("log_std"),
    ],
)
def test_headers_that_declare_what_is_not_there_are_one_line(change, tmp_path):
    hyrlo.save_policy(tmp_path, gaussian())
    path = tmp_path / "policy.safetensors"
    path.write_bytes(header_of(path.read_bytes(), change))
    structure = json.loads((tmp_path / "policy.json").read_text())
    arrays = re.search(rb'checksum\\": \\"(\w{32})', path.read_bytes())[1].decode()
    write_json(tmp_path / "policy.json", {**structure, "arrays": arrays})
    assert "policy.safetensors: does not hold the policy" in message(lambda: hyrlo.load_policy(tmp_path))


def test_a_header_longer_than_the_file_is_not_read(tmp_path):
    hyrlo.save_policy(tmp_path, gaussian())
    path = tmp_path / "policy.safetensors"
    content = path.read_bytes()
    for length in (2**63, 2**40, len(content)):
        path.write_bytes(length.to_bytes(8, "little") + content[8:])
        assert f"has {len(content)} bytes, fewer than its header declares" in message(
            lambda: hyrlo.load_policy(tmp_path)
        )
    with open(path, "wb") as file:  # a hole of a terabyte
        file.write((2**39).to_bytes(8, "little"))
        file.truncate(2**40)
    assert "fewer than its header declares" in message(lambda: hyrlo.load_policy(tmp_path))


def test_arrays_of_another_policy_are_refused(tmp_path):
    hyrlo.save_policy(tmp_path, gaussian())
    hyrlo.save_policy(tmp_path / "other", Gaussian(gaussian().network, jnp.ones(2)))
    (tmp_path / "policy.safetensors").write_bytes((tmp_path / "other" / "policy.safetensors").read_bytes())
    assert "one of the two files was replaced" in message(lambda: hyrlo.load_policy(tmp_path))
