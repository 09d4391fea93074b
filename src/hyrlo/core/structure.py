"""Whether a module that was read from a file can be what it says: types and sizes of its fields, and how arrays fit together.

Every policy that is read from a file comes through here before it is used. Types and shapes are those of the annotations
of its fields: `Float[Array, "latents actions"]` has one axis for each name, and axes of the same name are equally long.
"""

from __future__ import annotations

import dataclasses
import itertools
import types
import typing
from typing import Any

import equinox as eqx
import jax

from hyrlo.core import networks, policies
from hyrlo.core.networks import MLP, LatentQ, LayerNormMLP, OptimisticQ, Whitened
from hyrlo.core.policies import Blend, Gaussian, Mixture, Policy, Stack, action_of

MOST = 2**20
"""No policy has more actions, or a longer stack."""
Axes = tuple[int, ...]


def check_policy(policy: Any) -> None:
    """Raise `ValueError` unless it is a policy whose parts fit together."""
    if not isinstance(policy, Policy):
        raise ValueError(f"describes {type(policy).__name__}, not a policy")
    _check(policy, (), type(policy).__name__)
    if all(type(module).__module__ in (networks.__name__, policies.__name__) for module in modules_in(policy)):
        _check_action(policy)


def modules_in(value: Any) -> list[eqx.Module]:
    """The module and all modules within."""
    if isinstance(value, tuple):
        return [module for part in value for module in modules_in(part)]
    if not isinstance(value, eqx.Module):
        return []
    fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
    return [value, *(module for part in fields for module in modules_in(part))]


def _check(module: eqx.Module, lead: Axes, where: str) -> None:
    """Its fields, and those of the modules within; all arrays begin with the axes `lead`, of stacks of modules."""
    try:
        hints = typing.get_type_hints(type(module))
    except (NameError, TypeError, AttributeError):  # of a user's own module: its annotations are its own business
        hints = {}
    sizes: dict[str, int] = {}
    for field in dataclasses.fields(module):
        value, name = getattr(module, field.name), f"{where}.{field.name}"
        inner = lead
        if (isinstance(module, Stack) and field.name == "steps") or (
            isinstance(module, Blend) and field.name == "greedy"
        ):
            inner = (*lead, _length(value, len(lead), name))
        if field.name in hints:
            _check_value(value, hints[field.name], inner, sizes, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, eqx.Module):
                _check(part, inner, name)
    _check_sizes(module, lead, where)


def _length(stacked: Any, axis: int, where: str) -> int:
    """How many modules are stacked."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(stacked) if isinstance(leaf, jax.Array)]
    if not shapes or any(len(shape) <= axis or shape[axis] != shapes[0][axis] or shape[axis] < 1 for shape in shapes):
        raise ValueError(f"{where} is not a stack: its arrays have no first axis in common")
    return shapes[0][axis]


def _check_value(value: Any, hint: Any, lead: Axes, sizes: dict[str, int], where: str) -> None:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, tuple) or not value:
            raise ValueError(f"{where} is not a list of arrays")
        for i, part in enumerate(value):
            _check_value(part, typing.get_args(hint)[0], lead, {}, f"{where}.{i}")  # layers have sizes of their own
    elif hint in (int, bool, float, str):
        if type(value) is not hint or (hint is int and not 1 <= value <= MOST):
            raise ValueError(f"{where} is {str(value)[:40]}; it must be {'a positive ' * (hint is int)}{hint.__name__}")
    elif hasattr(hint, "dim_str"):
        _check_array(value, hint, lead, sizes, where)
    elif all(isinstance(kind, type) and issubclass(kind, eqx.Module) for kind in kinds) and not isinstance(
        value, kinds
    ):
        raise ValueError(f"{where} is {type(value).__name__}; it must be {' or '.join(k.__name__ for k in kinds)}")


def _check_array(value: Any, hint: Any, lead: Axes, sizes: dict[str, int], where: str) -> None:
    if not isinstance(value, jax.Array) or str(value.dtype) not in hint.dtypes:
        raise ValueError(f"{where} is not an array of {hint.__name__}")
    names, shape = hint.dim_str.split(), value.shape
    if any(name.startswith("*") for name in names):
        return
    if len(shape) != len(lead) + len(names) or 0 in shape:
        raise ValueError(f"{where} has shape {list(shape)}; it must be {[*lead, *names]}")
    for name, size in zip(names, shape[len(lead) :], strict=True):
        if name.isidentifier() and sizes.setdefault(name, size) != size:
            raise ValueError(f"{where} has shape {list(shape)}; {name} is {sizes[name]} elsewhere")


def _check_sizes(module: eqx.Module, lead: Axes, where: str) -> None:
    """What the annotations do not say: arrays that would be broadcast, and shares."""
    if isinstance(module, MLP | LayerNormMLP):
        widths = [(w.shape[-2], w.shape[-1], b.shape[-1]) for w, b in zip(module.weights, module.biases, strict=False)]
        fits = all(out == bias for _, out, bias in widths) and len(module.weights) == len(module.biases)
        if not fits or any(left[1] != right[0] for left, right in itertools.pairwise(widths)):
            raise ValueError(f"{where}: its weights and biases do not fit together")
    elif isinstance(module, Whitened) and module.shift.shape[-1] != module.network.weights[0].shape[-2]:
        raise ValueError(f"{where}.shift has {module.shift.shape[-1]} entries, its network another number of inputs")
    elif isinstance(module, Gaussian):
        if module.log_std.shape[-1] != _outputs(module.network):
            raise ValueError(
                f"{where}.log_std has {module.log_std.shape[-1]} entries, its network another number of outputs"
            )
    elif isinstance(module, Blend):
        if _length(module.greedy, len(lead), where) != module.shares.shape[-1]:
            raise ValueError(f"{where} has {module.shares.shape[-1]} shares, and another number of policies")
        if _outputs(module.greedy.q) not in (None, module.actions):
            raise ValueError(f"{where}.actions is {module.actions}, its policies have another number")
    elif isinstance(module, Mixture) and not bool(((module.share >= 0) & (module.share <= 1)).all()):
        raise ValueError(f"{where}.share is not from 0 to 1")


def _outputs(network: eqx.Module) -> int | None:
    """How many numbers it makes of an observation, if that is known."""
    if isinstance(network, Whitened):
        network = network.network
    if isinstance(network, MLP | LayerNormMLP):
        return network.weights[-1].shape[-1]
    if isinstance(network, LatentQ):
        return network.head.shape[-1]
    return network.weights.shape[-2] if isinstance(network, OptimisticQ) else None


def _check_action(policy: Policy) -> None:
    """Some size of observations must lead to actions. Which one, only the environment knows."""
    sizes = {size for leaf in jax.tree.leaves(policy) if isinstance(leaf, jax.Array) for size in leaf.shape}
    for size in sorted({1, *sizes, *(size - 1 for size in sizes if size > 1)}):
        try:
            action = action_of(policy, size)
        except (ArithmeticError, AttributeError, IndexError):
            continue
        if action is not None and action.shape[:1] == (1,) and len(action.shape) <= 2:
            return
    raise ValueError("its parts take observations, or give actions, that do not fit together")
