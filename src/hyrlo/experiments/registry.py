"""The experiments by name. Imports none of them."""

TITLES = {
    "lock": "success against episodes on the lock: FOOBAR, HyQ, BRIEE (Figure 1 left, the zoomed-in curve)",
    "inadmissible": "success on inadmissible data relative to the optimal policy (Table 2), and an exploring roll-in",
    "diagnose": "does diagnose flag the inadmissible locks at the right steps, and the admissible one not at all",
    "horizon-scaling": "episodes until success ≥ 0.9 against the horizon, for every algorithm",
    "ablation": "what makes the preset lean work on the lock: FOOBAR without one of its parts at a time",
    "gymnasium": "MountainCar, CartPole and MountainCarContinuous from state logs: FOOBAR beside SAC and DQN from scratch",
    "estimators": "MMD and effective sample size per step, importance weights against a learned model, on Pendulum",
    "hammer": "The Adroit hammer: FOOBAR beside RLPD and SAC from scratch, roll-in against data, frames",
    "stationary": "CPI-trace and Inter-FAIL against their bounds on discounted MDPs; CPI-trace with networks on CartPole",
    "theory": "the theorems on finite MDPs: guarantees, samples against states, hardness constructions",
}
