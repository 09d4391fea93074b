"""Modules to safetensors and JSON and back. No pickle."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from hyrlo.core import networks, policies, strict_json
from hyrlo.core.errors import HyrloError, RunError
from hyrlo.core.files import read_json, write_atomically, write_json
from hyrlo.core.policies import Policy

MODULES: dict[str, type[eqx.Module]] = {
    cls.__name__: cls
    for module in (networks, policies)
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, eqx.Module) and cls.__module__ == module.__name__
}
"""The modules that can be saved and loaded, by name."""
Module = TypeVar("Module", bound=type[eqx.Module])


def register(cls: Module) -> Module:
    """Let an Equinox module of your own be saved and loaded, such as a `Policy`. A class decorator.

    Register it under the same name wherever its policies are loaded.
    """
    known = MODULES.get(cls.__name__)
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise HyrloError(f"register: {cls.__name__} is the name of {known.__module__}.{known.__qualname__}; rename it")
    MODULES[cls.__name__] = cls
    return cls


def check_registered(value: Any) -> None:
    """Reject modules that could not be loaded again."""
    for module in jax.tree.leaves(value, is_leaf=lambda x: isinstance(x, eqx.Module)):
        if isinstance(module, eqx.Module):
            name = type(module).__name__
            if MODULES.get(name) is not type(module):
                raise HyrloError(f"{name} cannot be saved: hyrlo does not know it; decorate it with @hyrlo.register")
            check_registered(tuple(getattr(module, field.name) for field in dataclasses.fields(module)))


def describe(value: Any, tensors: dict[str, np.ndarray], path: str = "") -> Any:
    """A JSON tree of `value`; its arrays go into `tensors` under their paths."""
    if isinstance(value, eqx.Module):
        fields = {
            f.name: describe(getattr(value, f.name), tensors, f"{path}.{f.name}".lstrip("."))
            for f in dataclasses.fields(value)
        }
        return {"module": type(value).__name__, "fields": fields}
    if isinstance(value, tuple):
        return {"tuple": [describe(v, tensors, f"{path}.{i}".lstrip(".")) for i, v in enumerate(value)]}
    if isinstance(value, jax.Array | np.ndarray):
        tensors[path] = np.asarray(value, order="C")  # not ascontiguousarray, which gives scalars an axis
        return {"tensor": path}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"cannot save {type(value).__name__} at {path or 'the root'}")


def rebuild(tree: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    """The inverse of `describe`; only registered modules are ever made."""
    if not isinstance(tree, dict):
        return tree
    if "tensor" in tree:
        return jnp.asarray(tensors[tree["tensor"]])
    if "tuple" in tree:
        return tuple(rebuild(v, tensors) for v in tree["tuple"])
    if tree["module"] not in MODULES:
        raise RunError(f"unknown module {tree['module']}: import the code that registers it with hyrlo.register")
    cls = MODULES[tree["module"]]
    module = object.__new__(cls)
    for name, value in tree["fields"].items():
        object.__setattr__(module, name, rebuild(value, tensors))
    return module


def save_tree(path: Path, tree: Any, about: Mapping[str, Any]) -> None:
    """Arrays, structure and `about` in one safetensors file, so that they cannot disagree."""
    tensors: dict[str, np.ndarray] = {}
    header = json.dumps({"tree": describe(tree, tensors), "about": dict(about)})
    # One metadata key only: safetensors does not keep the order of several, and equal runs must give equal bytes.
    write_atomically(path, safetensors.numpy.save(tensors, metadata={"hyrlo": header}))


def load_tree(path: Path) -> tuple[Any, dict[str, Any]]:
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            header = strict_json.parse(file.metadata()["hyrlo"].encode())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return rebuild(header["tree"], tensors), header["about"]
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{path}: is damaged, or a checkpoint of another version ({error}); begin anew with another --out"
        ) from error


def save_policy(directory: str | Path, policy: Policy) -> None:
    """Into a directory, made if need be: `policy.safetensors` (arrays) and `policy.json` (structure)."""
    check_registered(policy)
    tensors: dict[str, np.ndarray] = {}
    tree = describe(policy, tensors)
    _check_finite(tensors, Path(directory) / "policy.safetensors")
    Path(directory).mkdir(parents=True, exist_ok=True)
    write_json(Path(directory) / "policy.json", tree)
    write_atomically(Path(directory) / "policy.safetensors", safetensors.numpy.save(tensors))


def policy_fingerprint(policy: Policy) -> dict[str, str]:
    """What kind of policy it is and a hash of it, to tell on resuming whether it is still the same."""
    tensors: dict[str, np.ndarray] = {}
    tree = json.dumps(describe(policy, tensors))
    content = hashlib.blake2b(tree.encode() + safetensors.numpy.save(tensors), digest_size=16)
    return {"policy": type(policy).__name__, "fingerprint": content.hexdigest()}


def load_policy(directory: str | Path) -> Policy:
    """What `save_policy`, or a run, left in a directory."""
    tree = read_json(Path(directory) / "policy.json")
    path = Path(directory) / "policy.safetensors"
    try:
        tensors = safetensors.numpy.load_file(path)
        policy = rebuild(tree, tensors)
    except (SafetensorError, OSError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path}: does not hold the policy that policy.json describes ({error}); train it anew"
        ) from error
    if not isinstance(policy, Policy):
        raise RunError(f"{Path(directory) / 'policy.json'}: does not describe a policy; train it anew")
    _check_finite(tensors, path)
    return policy


def _check_finite(tensors: Mapping[str, np.ndarray], path: Path) -> None:
    for name, values in tensors.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
            raise RunError(
                f"{path}: {name}{list(at)} is {values[at]}; train the policy anew, with a lower learning rate"
            )
