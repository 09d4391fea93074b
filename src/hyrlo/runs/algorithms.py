"""The registry of algorithms: a name, a function, and presets of its config."""

from hyrlo import foobar
from hyrlo.backward import cpi, psdp, sac
from hyrlo.baselines import briee, distil, hyq, rlpd
from hyrlo.core.algorithm import Algorithm
from hyrlo.forward import fail
from hyrlo.theory import inter_fail

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
            "one stationary policy from a given roll-in: CPI-trace in practice, with SAC; preset paper: Alg. 5",
            cpi.cpi,
            cpi.PRESETS,
            learns_from="roll-in",
            vectors=True,
        ),
        Algorithm(
            "inter-fail",
            "match the states of an interactive offline distribution, stationary (Alg. 6); for discounted",
            inter_fail.inter_fail,
            inter_fail.PRESETS,
            access="interactive",
            learns_from="nothing",
        ),
        Algorithm(
            "distil",
            "one stationary policy that does what a given roll-in does on average: a baseline",
            distil.distil,
            distil.PRESETS,
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
            "rlpd",
            "SAC with offline tuples in every batch: needs actions and rewards in the offline data",
            rlpd.rlpd,
            rlpd.PRESETS,
            learns_from="transitions",
            vectors=True,
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
