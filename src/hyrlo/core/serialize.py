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

from hyrlo.core import networks, policies
from hyrlo.core.errors import HyrloError, RunError
from hyrlo.core.files import DamagedFile, load_json, verified, write_json
from hyrlo.core.policies import Policy
from hyrlo.core.structure import check_policy
from hyrlo.core.tensors import load_tensors, save_tensors

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
    """The inverse of `describe`; only registered modules are ever made. `ValueError` if the tree is none of its trees."""
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    kinds = tuple(tree) if isinstance(tree, dict) else ()
    if kinds == ("tensor",) and isinstance(tree["tensor"], str) and tree["tensor"] in tensors:
        return jnp.asarray(tensors[tree["tensor"]])
    if kinds == ("tuple",) and isinstance(tree["tuple"], list):
        return tuple(rebuild(v, tensors) for v in tree["tuple"])
    if kinds != ("module", "fields") or not isinstance(tree["module"], str) or not isinstance(tree["fields"], dict):
        raise ValueError(f"no module, list or array that is there: {json.dumps(tree)[:60]}")
    if tree["module"] not in MODULES:
        raise RunError(f"unknown module {tree['module']}: import the code that registers it with hyrlo.register")
    cls = MODULES[tree["module"]]
    if set(tree["fields"]) != {field.name for field in dataclasses.fields(cls)}:
        raise ValueError(f"{tree['module']} has other fields")
    module = object.__new__(cls)
    for name, value in tree["fields"].items():
        object.__setattr__(module, name, rebuild(value, tensors))
    return module


def _tensors_in(tree: Any) -> list[str]:
    """The names of all arrays that a tree mentions."""
    if isinstance(tree, dict):
        return [tree["tensor"]] if "tensor" in tree else [name for part in tree.values() for name in _tensors_in(part)]
    return [name for part in tree for name in _tensors_in(part)] if isinstance(tree, list) else []


def _policy_of(tree: Any, tensors: Mapping[str, np.ndarray]) -> Policy:
    """A policy whose structure is that of its arrays; else `ValueError`."""
    try:
        policy = rebuild(tree, tensors)
        if sorted(_tensors_in(tree)) != sorted(tensors):
            raise ValueError("the arrays are others than the structure names")
        check_policy(policy)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    return policy


def save_tree(path: Path, policy: Policy, about: Mapping[str, Any]) -> None:
    """Arrays, structure and `about` in one safetensors file, so that they cannot disagree."""
    tensors: dict[str, np.ndarray] = {}
    save_tensors(path, tensors, {"tree": describe(policy, tensors), "about": dict(about)})


def load_tree(path: Path) -> tuple[Policy, dict[str, Any]]:
    try:
        tensors, header = load_tensors(path)
        policy, about = _policy_of(header.get("tree"), tensors), header.get("about")
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: is damaged, or of another version ({error}); train it anew") from error
    _check_finite(tensors, path)
    return policy, about if isinstance(about, dict) else {}


def save_policy(directory: str | Path, policy: Policy) -> None:
    """Into a directory, made if need be: `policy.safetensors` (arrays) and `policy.json` (structure)."""
    check_registered(policy)
    tensors: dict[str, np.ndarray] = {}
    tree = describe(policy, tensors)
    _check_finite(tensors, Path(directory) / "policy.safetensors")
    Path(directory).mkdir(parents=True, exist_ok=True)
    arrays = save_tensors(Path(directory) / "policy.safetensors", tensors, {})
    write_json(Path(directory) / "policy.json", {**tree, "arrays": arrays})


def policy_fingerprint(policy: Policy) -> dict[str, str]:
    """What kind of policy it is and a hash of it, to tell on resuming whether it is still the same."""
    tensors: dict[str, np.ndarray] = {}
    tree = json.dumps(describe(policy, tensors))
    content = hashlib.blake2b(tree.encode() + safetensors.numpy.save(tensors), digest_size=16)
    return {"policy": type(policy).__name__, "fingerprint": content.hexdigest()}


def load_policy(directory: str | Path) -> Policy:
    """What `save_policy`, or a run, left in a directory."""
    structure, path = Path(directory) / "policy.json", Path(directory) / "policy.safetensors"
    tree = load_json(structure)
    if not isinstance(tree, dict) or "module" not in tree:
        raise RunError(f"{structure}: does not describe a policy; train it anew")
    tree = verified(structure, tree)
    arrays = tree.pop("arrays", None)
    try:
        tensors, about = load_tensors(path)
        if about["checksum"] != arrays:
            raise DamagedFile("one of the two files was replaced")
        policy = _policy_of(tree, tensors)
    except (OSError, ValueError) as error:
        raise RunError(
            f"{path}: does not hold the policy that policy.json describes ({error}); train it anew"
        ) from error
    _check_finite(tensors, path)
    return policy


def _check_finite(tensors: Mapping[str, np.ndarray], path: Path) -> None:
    for name, values in tensors.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
            raise RunError(
                f"{path}: {name}{list(at)} is {values[at]}; train the policy anew, with a lower learning rate"
            )
