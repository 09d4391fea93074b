"""Exports a policy to a file that acts without JAX: ONNX, or NumPy alone."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces.utils import flatdim

from hyrlo import __version__
from hyrlo.core.errors import HyrloError
from hyrlo.core.files import atomic_file, write_atomically
from hyrlo.core.names import check_name
from hyrlo.runs.agent import Agent, load
from hyrlo.runs.graph import ACTION, OBSERVATION, STEP, Graph, graph_of
from hyrlo.runs.numpy_policy import FORMAT

ENDINGS = {"onnx": ".onnx", "numpy": ".npz"}
OPSET, IR = 17, 8
"""Of ONNX: old enough for the runtimes of the last years."""


def export(source: str | Path | Agent, to: str, out: str | Path, trust: bool = False) -> Path:
    """Write the most likely actions of a run, or of an agent, as a file: `to` is `onnx` or `numpy`.

    Inputs are flat observations `(n, size)`, as `gymnasium.spaces.flatten` makes them (the NumPy file also takes the
    environment's own), and, for policies that depend on it, the step. Actions are as the environment takes them. `trust` is
    that of `hyrlo.load`.
    """
    check_name(to, ENDINGS, "format")
    out = Path(out)
    if out.suffix != ENDINGS[to]:
        raise HyrloError(f"{out}: give a name that ends with {ENDINGS[to]}")
    if not out.parent.is_dir():
        raise HyrloError(f"{out}: there is no folder {out.parent}; make it first")
    agent = source if isinstance(source, Agent) else load(source, trust=trust)
    size = flatdim(agent.observation_space)
    graph = graph_of(agent.policy, size, agent.world)
    about = {
        "format": FORMAT,
        "hyrlo": __version__,
        **agent.about,
        "horizon": graph.horizon,
        "needs_step": graph.needs_step,
        "observation": agent.layout,
        "action": str(agent.action_space),
    }
    if to == "onnx":
        write_atomically(out, _onnx(graph, about, size, agent))
    else:
        _write_numpy(out, graph, about)
    return out


def _write_numpy(out: Path, graph: Graph, about: dict[str, Any]) -> None:
    with atomic_file(out) as file:
        arrays: dict[str, Any] = {**graph.constants, "policy": np.asarray(json.dumps({**about, "nodes": graph.nodes}))}
        np.savez(file, **arrays)


def _onnx(graph: Graph, about: dict[str, Any], size: int, agent: Agent) -> bytes:
    try:
        onnx: Any = importlib.import_module("onnx")
    except ImportError as error:
        raise HyrloError("export: onnx is not installed; pip install 'hyrlo[onnx]', or give --to numpy") from error
    make, types = onnx.helper, onnx.TensorProto
    kind = make.np_dtype_to_tensor_dtype
    nodes = [
        make.make_node(
            node.operation,
            node.inputs,
            [node.output],
            **{name: kind(np.dtype(value)) if name == "to" else value for name, value in node.attributes.items()},
        )
        for node in graph.nodes
    ]
    inputs = [make.make_tensor_value_info(OBSERVATION, types.FLOAT, ["n", size])]
    if graph.needs_step:
        inputs.append(make.make_tensor_value_info(STEP, types.INT64, []))
    actions: Any = agent.action_space
    outputs = [make.make_tensor_value_info(ACTION, kind(np.dtype(actions.dtype)), ["n", *actions.shape])]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in graph.constants.items()]
    made = make.make_graph(nodes, "policy", inputs, outputs, constants)
    model = make.make_model(
        made,
        opset_imports=[make.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="hyrlo",
        producer_version=__version__,
    )
    make.set_model_props(model, {"hyrlo": json.dumps(about)})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)
