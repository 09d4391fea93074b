"""The experiments by name. Imports none of them."""

TITLES = {
    "lock": "every number on the lock: defaults, good mass, FOOBAR beside HyQ and BRIEE (Figure 1 left), Table 2",
    "inadmissible": "success on inadmissible data relative to the optimal policy (Table 2), and an exploring roll-in",
    "diagnose": "does diagnose flag the inadmissible locks at the right steps, and the admissible one not at all",
    "tabular": "total variation of the forward pass on random finite MDPs with noisy observations",
    "gymnasium": "MountainCar, CartPole and MountainCarContinuous from state logs: FOOBAR beside SAC and DQN from scratch",
    "estimators": "MMD and effective sample size per step, importance weights against a learned model, on Pendulum",
    "adroit": "three Adroit tasks from states of an expert: FOOBAR beside RLPD and SAC from scratch, roll-in against data",
    "stationary": "CPI-trace and Inter-FAIL against their bounds on discounted MDPs; CPI-trace with networks on CartPole",
    "theory": "the theorems on finite MDPs: guarantees, samples against states, hardness constructions",
}
