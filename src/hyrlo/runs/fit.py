"""Whether a policy and an environment fit together: a policy for others can act without an error, and score anything."""

from __future__ import annotations

import jax
import numpy as np

from hyrlo.core.access import Spec
from hyrlo.core.networks import MLP, LatentQ, LayerNormMLP, OptimisticQ, Whitened
from hyrlo.core.policies import (
    Blend,
    Greedy,
    LatentSoftmax,
    LatentTable,
    Mixture,
    Policy,
    Softmax,
    Stack,
    Switch,
    ThroughView,
    Uniform,
    action_of,
    known_steps,
)


def misfit(policy: Policy, spec: Spec, name: str) -> str | None:
    """Why a policy cannot act for all steps of a world called `name`, in words; None if it can."""
    known = known_steps(policy)
    if known is not None and known < spec.horizon:
        return f"has policies for {known} steps; horizon is {spec.horizon}: give --horizon {known}"
    action = action_of(policy, spec.observation_size)
    wanted = spec.no_actions(1)
    same_kind = action is not None and (action.dtype.kind == "f") == (spec.action_size > 0)
    if action is None or action.shape != wanted.shape or not same_kind:
        return f"is a policy for other states or actions than those of {name}; give another"
    counts = action_counts(policy) if spec.actions else set()
    if counts - {spec.actions}:
        return f"is a policy for {min(counts - {spec.actions})} actions, but {name} has {spec.actions}; give another"
    return None


def other_horizon(policy: Policy, horizon: int) -> int | None:
    """For how many steps the policy was made, where that cannot be `horizon`."""
    is_stack = lambda x: isinstance(x, Stack)  # noqa: E731
    for stack in filter(is_stack, jax.tree.leaves(policy, is_leaf=is_stack)):
        length = {len(x) for x in jax.tree.leaves(stack.steps) if np.ndim(x)}
        if length != {-(-horizon // stack.every)}:
            return stack.every * min(length, default=0)
    return None


def action_counts(policy: Policy) -> set[int]:
    """The numbers of discrete actions that the parts of a policy choose from, as far as they are known."""
    if isinstance(policy, Uniform | Blend):
        return {policy.actions}
    if isinstance(policy, Switch | Mixture):
        second = policy.then if isinstance(policy, Switch) else policy.second
        return action_counts(policy.first) | action_counts(second)
    if isinstance(policy, Stack):
        return action_counts(policy.steps)
    if isinstance(policy, ThroughView):
        return action_counts(policy.policy)
    if isinstance(policy, LatentTable):
        return {policy.table.shape[-1]}
    if isinstance(policy, Greedy | Softmax | LatentSoftmax):
        inner = {Greedy: "q", Softmax: "network", LatentSoftmax: "table"}[type(policy)]
        return _outputs(getattr(policy, inner))
    return set()


def _outputs(network: object) -> set[int]:
    """How many numbers a network makes of an observation, if that is known."""
    if isinstance(network, Whitened):
        return _outputs(network.network)
    if isinstance(network, MLP | LayerNormMLP):
        return {network.biases[-1].shape[-1]}
    if isinstance(network, LatentQ):
        return {network.head.shape[-1]}
    return {network.weights.shape[-2]} if isinstance(network, OptimisticQ) else set()
