"""The registry of algorithms: a name, a function, and presets of its config."""

from hyrlo.algorithms import briee, fail, foobar, hyq, psdp, sac
from hyrlo.algorithms.base import Algorithm

ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "foobar", "match the states forwards, then improve backwards", foobar.foobar, foobar.PRESETS, vectors=True
        ),
        Algorithm("fail", "the forward pass alone: match the states (Alg. 3)", fail.fail, fail.PRESETS, vectors=True),
        Algorithm("psdp", "the backward pass with a reset model (Alg. 1)", psdp.psdp, psdp.PRESETS, access="reset"),
        Algorithm(
            "psdp-trace",
            "the backward pass from a given roll-in policy (Alg. 2)",
            psdp.psdp_trace,
            psdp.PRESETS,
            learns_from="roll-in",
        ),
        Algorithm(
            "cpi",
            "one stationary policy from a given roll-in: CPI-trace in practice, with SAC",
            sac.cpi_trace,
            sac.PRESETS,
            learns_from="roll-in",
            vectors=True,
        ),
        Algorithm(
            "hyq",
            "hybrid Q-learning: needs actions and rewards in the offline data",
            hyq.hyq,
            hyq.PRESETS,
            learns_from="transitions",
        ),
        Algorithm(
            "briee",
            "online RL with learned representations: no offline data",
            briee.briee,
            briee.PRESETS,
            learns_from="nothing",
        ),
        Algorithm(
            "sac",
            "online RL with one stationary policy, from scratch: no offline data",
            sac.sac,
            sac.PRESETS,
            learns_from="nothing",
            vectors=True,
        ),
    )
}

__all__ = ["ALGORITHMS", "Algorithm"]
