"""Acts with a policy that `hyrlo export --to numpy` wrote.

This file needs NumPy and nothing else. Copy it beside the exported file, or use `hyrlo.NumpyPolicy`, which does not load JAX.

    policy = NumpyPolicy("policy.npz")
    action = policy(observation, step)

The exported file is a graph of operations with the names and the meaning that they have in ONNX, and its constants.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

FORMAT = 1


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def pad(x: np.ndarray, widths: np.ndarray, value: np.ndarray) -> np.ndarray:
    return np.pad(x, list(zip(widths[: x.ndim], widths[x.ndim :], strict=True)), constant_values=value)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Less": np.less,
    "Where": np.where,
    "MatMul": np.matmul,
    "Einsum": lambda *x, equation: np.einsum(equation, *x),
    "Tanh": np.tanh,
    "Relu": lambda x: np.maximum(x, 0),
    "Sqrt": np.sqrt,
    "Clip": np.clip,
    "Round": np.rint,
    "ReduceMean": lambda x, axes, keepdims: x.mean(axis=tuple(axes), keepdims=bool(keepdims)),
    "Softmax": softmax,
    "ArgMax": lambda x, axis, keepdims: np.argmax(x, axis=axis, keepdims=bool(keepdims)),
    "Concat": lambda *x, axis: np.concatenate(x, axis=axis),
    "Gather": lambda x, indices, axis: np.take(x, indices, axis=axis),
    "Pad": pad,
    "Cast": lambda x, to: x.astype(to),
    "Reshape": np.reshape,
}


def flat(layout: Mapping[str, Any], observation: Any) -> tuple[np.ndarray, bool]:
    """Rows of numbers, one for each observation, and whether it was a single one. Discrete observations are one-hot."""
    if "parts" in layout:
        columns = [flat(part, observation[key]) for key, part in layout["parts"]]
        if len({(len(rows), single) for rows, single in columns}) > 1:
            raise ValueError("its parts are batches of different sizes")
        return np.concatenate([rows for rows, _ in columns], axis=1), columns[0][1]
    values, shape = np.asarray(observation), tuple(layout["shape"])
    single = values.shape == shape
    if not single and values.shape[1:] != shape:
        raise ValueError(
            f"has shape {values.shape}, not {shape}; a batch has shape (n{''.join(f', {n}' for n in shape)})"
        )
    if not values.size:
        raise ValueError("is an empty batch")
    rows = values.reshape(1 if single else len(values), int(np.prod(shape)))
    if "choices" not in layout:
        return rows.astype(np.float32), single
    hot = [column[:, None] - start == np.arange(n) for column, start, n in zip(rows.T, *layout["choices"], strict=True)]
    if not all(rows.any(axis=1).all() for rows in hot):
        raise ValueError(f"{values.tolist()} is not in its space")
    return np.concatenate(hot, axis=1).astype(np.float32), single


class NumpyPolicy:
    """The most likely action for one observation or a batch of them, in the environment's own spaces.

    `step` counts from 0 at the beginning of an episode. It may be left out if `needs_step` is False.
    """

    def __init__(self, path: Any):
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        self.about = json.loads(str(arrays.pop("policy")))
        if self.about["format"] != FORMAT:
            raise ValueError(f"{path}: has format {self.about['format']}, not {FORMAT}; export it anew")
        self.constants, self.needs_step, self.horizon = arrays, self.about["needs_step"], self.about["horizon"]

    def __call__(self, observation: Any, step: int | None = None) -> Any:
        rows, single = flat(self.about["observation"], observation)
        if self.needs_step and (step is None or not 0 <= step < self.horizon):
            raise ValueError(f"step is {step}; this policy needs a step from 0 to {self.horizon - 1}")
        values = {**self.constants, "observation": rows, "step": np.asarray(step or 0, np.int64)}
        for operation, inputs, output, attributes in self.about["nodes"]:
            values[output] = OPERATIONS[operation](*(values[name] for name in inputs), **attributes)
        actions = values["action"]
        if not single:
            return actions
        return int(actions[0]) if actions.ndim == 1 else actions[0]
