"""A policy's most likely action as a graph of operations, which NumPy and ONNX runtimes compute without JAX.

Operations have the names and the meaning of ONNX. Only policies and networks of hyrlo itself are known here: a class of
a user's own may compute anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from hyrlo.core import networks, policies
from hyrlo.core.errors import HyrloError
from hyrlo.core.whitening import LIMIT
from hyrlo.envs.gym.wrappers import combinations

OBSERVATION, STEP, ACTION = "observation", "step", "action"
"""Names of the graph's inputs and of its output."""


class Node(NamedTuple):
    """One operation."""

    operation: str
    inputs: list[str]
    output: str
    attributes: dict[str, Any]


class Tensor(NamedTuple):
    """A tensor in a graph; the size of its last dimension, where it is needed, and those of constants are known."""

    name: str
    shape: tuple[int | None, ...]

    @property
    def size(self) -> int:
        assert self.shape[-1] is not None
        return self.shape[-1]


Given = Tensor | np.ndarray | np.integer | jax.Array | float


class Graph:
    """Nodes in the order in which they are computed, and constants."""

    def __init__(self, horizon: int):
        self.horizon = horizon
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray] = {}
        self._names: dict[bytes, str] = {}

    @property
    def needs_step(self) -> bool:
        return any(STEP in node.inputs for node in self.nodes)

    def constant(self, value: Given, dtype: Any = np.float32) -> Tensor:
        """A tensor of the value; equal ones are kept once."""
        if isinstance(value, Tensor):
            return value
        array = np.asarray(value)
        array = np.asarray(array, np.int64 if array.dtype.kind in "iu" else dtype, order="C")
        digest = hashlib.blake2b(f"{array.dtype}{array.shape}".encode() + array.tobytes()).digest()
        name = self._names.setdefault(digest, f"constant{len(self._names)}")
        self.constants[name] = array
        return Tensor(name, array.shape)

    def add(
        self, operation: str, *inputs: Given, shape: tuple[int | None, ...] | None = None, **attributes: Any
    ) -> Tensor:
        """The output of an operation. It has the shape of the first input, if none is given."""
        tensors = [self.constant(value) for value in inputs]
        name = f"value{len(self.nodes)}"
        self.nodes.append(Node(operation, [tensor.name for tensor in tensors], name, attributes))
        return Tensor(name, tensors[0].shape if shape is None else shape)

    def matmul(self, x: Tensor, weights: Given) -> Tensor:
        weights = self.constant(weights)
        return self.add("MatMul", x, weights, shape=(None, weights.size))

    def gather(self, values: Given, index: Given, axis: int = 0) -> Tensor:
        """`values[index]` along an axis."""
        values, index = self.constant(values), self.constant(index)
        shape = (*values.shape[:axis], *index.shape, *values.shape[axis + 1 :])
        return self.add("Gather", values, index, shape=shape, axis=axis)

    def argmax(self, x: Tensor) -> Tensor:
        return self.add("ArgMax", x, shape=(None,), axis=1, keepdims=0)

    def with_ones(self, x: Tensor, size: int, value: float = 1.0) -> Tensor:
        """With columns of ones, or of another value, up to `size`."""
        more = size - x.size
        widths = np.asarray([0, 0, 0, more])
        return self.add("Pad", x, widths, value, shape=(None, size)) if more else x

    def network(self, module: Any, x: Tensor) -> Tensor:
        return _known(NETWORKS, module)(self, module, x)

    def policy(self, module: Any, x: Tensor, h: Tensor) -> Tensor:
        return _known(POLICIES, module)(self, module, x, h)


def _known(rules: dict[type, Callable[..., Tensor]], module: Any) -> Callable[..., Tensor]:
    if type(module) not in rules:
        raise HyrloError(
            f"export: {type(module).__name__} cannot be exported, only policies and networks of hyrlo's own classes; "
            "act with hyrlo.load(DIR).predict"
        )
    return rules[type(module)]


def graph_of(policy: policies.Policy, observation_size: int, world: Any) -> Graph:
    """From flat observations `(n, observation_size)` and a step to actions in the environment's own space."""
    graph = Graph(world.spec.horizon)
    x = graph.with_ones(
        Tensor(OBSERVATION, (None, observation_size)), world.spec.observation_size, 0.0
    )  # has not ended
    actions = graph.policy(policy, x, Tensor(STEP, ()))
    _own(graph, actions, world.spaces[1])
    graph.nodes[-1] = graph.nodes[-1]._replace(output=ACTION)
    return graph


def _own(g: Graph, actions: Tensor, space: gymnasium.Space) -> None:
    """As `hyrlo.envs.gym.wrappers.action_converter`."""
    if isinstance(space, spaces.Discrete):
        g.add("Add", actions, np.int64(space.start))
    elif isinstance(space, spaces.MultiDiscrete):
        g.add("Cast", g.gather(combinations(space), actions), to=str(space.dtype))
    else:
        assert isinstance(space, spaces.Box)
        low, high = (g.constant(bound.astype(np.float64).ravel(), np.float64) for bound in (space.low, space.high))
        one, two = (g.constant(value, np.float64) for value in (1.0, 2.0))
        unit = g.add("Cast", g.add("Clip", actions, -1.0, 1.0), to="float64")
        half = g.add("Div", g.add("Sub", high, low), two)
        scaled = g.add("Add", g.add("Mul", g.add("Add", unit, one), half), low)
        if np.issubdtype(space.dtype, np.integer):
            scaled = g.add("Round", scaled)
        g.add("Reshape", g.add("Cast", scaled, to=str(space.dtype)), np.asarray([-1, *space.shape]))


# Networks


def _layers(g: Graph, net: Any, x: Tensor, between: Callable[[Tensor], Tensor]) -> Tensor:
    *hidden, last = zip(net.weights, net.biases, strict=True)
    for weight, bias in hidden:
        x = between(g.add("Add", g.matmul(x, weight), bias))
    return g.add("Add", g.matmul(x, last[0]), last[1])


def _mlp(g: Graph, net: networks.MLP, x: Tensor) -> Tensor:
    return _layers(g, net, x, lambda x: g.add("Tanh", x))


def _layer_norm_mlp(g: Graph, net: networks.LayerNormMLP, x: Tensor) -> Tensor:
    mean = lambda x: g.add("ReduceMean", x, axes=[1], keepdims=1)  # noqa: E731

    def between(x: Tensor) -> Tensor:
        if net.normalise:
            centred = g.add("Sub", x, mean(x))
            x = g.add("Div", centred, g.add("Sqrt", g.add("Add", mean(g.add("Mul", centred, centred)), 1e-5)))
        return g.add("Relu", x)

    return _layers(g, net, x, between)


def _whitened(g: Graph, net: networks.Whitened, x: Tensor) -> Tensor:
    return g.network(net.network, g.add("Clip", g.add("Div", g.add("Sub", x, net.shift), net.scale), -LIMIT, LIMIT))


def _latent_state(g: Graph, x: Tensor, encoder: Given) -> Tensor:
    encoder = g.constant(encoder)
    return g.add("Softmax", g.matmul(g.with_ones(x, encoder.shape[0] or 0), encoder), axis=1)


def _latent_q(g: Graph, q: networks.LatentQ, x: Tensor) -> Tensor:
    return g.add("Add", g.matmul(_latent_state(g, x, q.encoder), q.head), q.bias)


def _optimistic_q(g: Graph, q: networks.OptimisticQ, x: Tensor) -> Tensor:
    latents = g.add("Softmax", g.add("Mul", g.matmul(x, q.encoder), q.scale), axis=1)
    square = g.add("Einsum", latents, q.inverse, latents, equation="nk,akl,nl->na")
    width = g.add("Sqrt", g.add("Max", square, 0.0))
    value = g.add("Einsum", latents, q.weights, equation="nk,ak->na")
    return g.add("Min", g.add("Add", value, g.add("Mul", width, q.bonus)), q.most)


NETWORKS: dict[type, Callable[..., Tensor]] = {
    networks.MLP: _mlp,
    networks.LayerNormMLP: _layer_norm_mlp,
    networks.Whitened: _whitened,
    networks.LatentQ: _latent_q,
    networks.OptimisticQ: _optimistic_q,
}


# Policies


def _first_action(g: Graph, policy: policies.Uniform, x: Tensor, h: Tensor) -> Tensor:
    return g.argmax(g.gather(x, np.asarray([0]), axis=1))


def _middle(g: Graph, policy: policies.UniformBox, x: Tensor, h: Tensor) -> Tensor:
    return g.matmul(x, np.zeros((x.size, policy.size)))


def _gaussian(g: Graph, policy: policies.Gaussian, x: Tensor, h: Tensor) -> Tensor:
    return g.add("Tanh", g.network(policy.network, x))


def _squashed_gaussian(g: Graph, policy: policies.SquashedGaussian, x: Tensor, h: Tensor) -> Tensor:
    both = g.network(policy.network, x)
    return g.add("Tanh", g.gather(both, np.arange(both.size // 2), axis=1))


def _softmax(g: Graph, policy: policies.Softmax, x: Tensor, h: Tensor) -> Tensor:
    return g.argmax(g.network(policy.network, x))


def _latent_softmax(g: Graph, policy: policies.LatentSoftmax, x: Tensor, h: Tensor) -> Tensor:
    return g.argmax(g.network(policy.table, _latent_state(g, x, policy.encoder)))


def _latent_table(g: Graph, policy: policies.LatentTable, x: Tensor, h: Tensor) -> Tensor:
    return g.argmax(g.matmul(_latent_state(g, x, policy.encoder), policy.table))


def _greedy(g: Graph, policy: policies.Greedy, x: Tensor, h: Tensor) -> Tensor:
    return g.argmax(g.network(policy.q, x))


def _blend(g: Graph, policy: policies.Blend, x: Tensor, h: Tensor) -> Tensor:
    shares, one_hot = g.constant(policy.shares), np.eye(policy.actions)
    rest = g.constant(np.zeros(policy.actions))  # uniform: it favours no action
    for place in range(shares.shape[0] or 0):
        chosen = g.policy(_at(g, policy.greedy, np.asarray(place)), x, h)
        rest = g.add("Add", g.add("Mul", g.gather(one_hot, chosen), g.gather(shares, np.asarray(place))), rest)
    return g.argmax(rest)


def _through_view(g: Graph, policy: policies.ThroughView, x: Tensor, h: Tensor) -> Tensor:
    encoders = g.constant(policy.view.encoders)
    steps, rows, latents = (n or 0 for n in encoders.shape)
    latent = g.argmax(g.matmul(g.with_ones(x, rows), g.gather(encoders, h)))
    step = g.add("Add", g.add("Mul", latent, np.int64(0)), h)
    parts = g.gather(np.eye(latents), latent), g.gather(np.eye(steps), step)
    return g.policy(policy.policy, g.add("Concat", *parts, shape=(None, latents + steps), axis=1), h)


def _stack(g: Graph, policy: policies.Stack, x: Tensor, h: Tensor) -> Tensor:
    most = g.constant(jax.tree.leaves(policy.steps, is_leaf=_is_tensor)[0]).shape[0] or 0
    place = g.gather(np.minimum(np.arange(g.horizon) // policy.every, most - 1), h)
    return g.policy(_at(g, policy.steps, place), x, h)


def _switch(g: Graph, policy: policies.Switch, x: Tensor, h: Tensor) -> Tensor:
    at = g.constant(policy.at)
    if at.shape:
        raise HyrloError(
            "export: each episode switches at a step of its own; export a policy that switches at one step"
        )
    return _either(g, g.add("Less", h, at), policy, x, h, policy.first, policy.then)


def _mixture(g: Graph, policy: policies.Mixture, x: Tensor, h: Tensor) -> Tensor:
    second = g.add("Less", 0.5, policy.share)
    return _either(g, second, policy, x, h, policy.second, policy.first)


def _either(g: Graph, condition: Tensor, policy: Any, x: Tensor, h: Tensor, first: Any, second: Any) -> Tensor:
    one, other = g.policy(first, x, h), g.policy(second, x, h)
    return g.add("Where", condition, one, other, shape=one.shape)


def _most_likely(g: Graph, policy: policies.MostLikely, x: Tensor, h: Tensor) -> Tensor:
    return g.policy(policy.policy, x, h)


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def _at(g: Graph, module: eqx.Module, index: Given) -> Any:
    """The module at an index of the leading axis of its arrays."""
    return jax.tree.map(lambda leaf: g.gather(leaf, index), module, is_leaf=_is_tensor)


POLICIES: dict[type, Callable[..., Tensor]] = {
    policies.Uniform: _first_action,
    policies.UniformBox: _middle,
    policies.Gaussian: _gaussian,
    policies.SquashedGaussian: _squashed_gaussian,
    policies.Softmax: _softmax,
    policies.LatentSoftmax: _latent_softmax,
    policies.LatentTable: _latent_table,
    policies.Greedy: _greedy,
    policies.Blend: _blend,
    policies.ThroughView: _through_view,
    policies.Stack: _stack,
    policies.Switch: _switch,
    policies.Mixture: _mixture,
    policies.MostLikely: _most_likely,
}
