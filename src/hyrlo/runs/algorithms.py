"""The registry of algorithms. An entry names its functions by strings, so that listing algorithms imports none of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hyrlo.core.errors import HyrloError
from hyrlo.core.names import load_object


@dataclass(frozen=True)
class Algorithm:
    """An entry of the registry."""

    name: str
    summary: str
    function: str
    """`module:function` of `(model, source, config, key, run) → Policy`. `source` is what the algorithm learns from besides
    the world: offline states or transitions, a roll-in policy, or None."""
    configure: str
    """`module:function` of a `Choice` that returns the config."""
    access: Literal["trace", "reset", "interactive"] = "trace"
    learns_from: Literal["states", "transitions", "roll-in", "nothing"] = "states"
    vectors: bool = False
    """Whether actions may be vectors."""
    choices: tuple[str, ...] = ()
    """The options that choose a variant."""

    def train(self, *args: Any) -> Any:
        return load_object(self.function)(*args)

    def config(self, choice: Any) -> Any:
        for name in ("forward", "improve", "discriminator", "explore"):
            if getattr(choice, name) is not None and name not in self.choices:
                raise HyrloError(f"--{name}: {self.name} has no such choice; leave it out")
        return load_object(self.configure)(choice)


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "foobar", "match the states forwards, then improve backwards",
            "hyrlo.foobar:foobar", "hyrlo.foobar:configure",
            vectors=True, choices=("forward", "improve", "discriminator", "explore"),
        ),
        Algorithm(
            "fail", "the forward pass alone: match the states (Alg. 3)",
            "hyrlo.forward.fail:fail", "hyrlo.forward.variants:configure",
            vectors=True, choices=("forward", "discriminator"),
        ),
        Algorithm(
            "psdp", "the backward pass with a reset model (Alg. 1)",
            "hyrlo.backward.psdp:psdp", "hyrlo.backward.psdp:configure",
            access="reset",
        ),
        Algorithm(
            "psdp-trace", "the backward pass from a given roll-in policy (Alg. 2)",
            "hyrlo.backward.psdp:psdp_trace", "hyrlo.backward.psdp:configure_trace",
            learns_from="roll-in",
        ),
        Algorithm(
            "cpi", "one stationary policy from a given roll-in: SAC, or Alg. 5 with --improve cpi",
            "hyrlo.backward.cpi:cpi", "hyrlo.backward.variants:configure_cpi",
            learns_from="roll-in", vectors=True, choices=("improve",),
        ),
        Algorithm(
            "inter-fail", "match the states of an interactive offline distribution (Alg. 6); for discounted",
            "hyrlo.theory.inter_fail:inter_fail", "hyrlo.theory.inter_fail:configure",
            access="interactive", learns_from="nothing",
        ),
        Algorithm(
            "distil", "baseline: one stationary policy that imitates a given roll-in",
            "hyrlo.baselines.distil:distil", "hyrlo.baselines.distil:configure",
            learns_from="roll-in", vectors=True,
        ),
        Algorithm(
            "hyq", "hybrid Q-learning: needs actions and rewards in the offline data",
            "hyrlo.baselines.hyq:hyq", "hyrlo.baselines.hyq:configure",
            learns_from="transitions",
        ),
        Algorithm(
            "briee", "online RL with learned representations: no offline data",
            "hyrlo.baselines.briee:briee", "hyrlo.baselines.briee:configure",
            learns_from="nothing",
        ),
        Algorithm(
            "rlpd", "SAC with offline tuples in every batch: needs actions and rewards in the offline data",
            "hyrlo.baselines.rlpd:rlpd", "hyrlo.baselines.rlpd:configure",
            learns_from="transitions", vectors=True,
        ),
        Algorithm(
            "sac", "online RL with one stationary policy, from scratch: no offline data",
            "hyrlo.backward.off_policy:sac", "hyrlo.backward.variants:configure_sac",
            learns_from="nothing", vectors=True,
        ),
    )
}  # fmt: skip
