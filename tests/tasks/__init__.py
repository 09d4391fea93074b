"""Three discrete Gymnasium tasks, from outside of hyrlo. Importing this package registers them.

From the root of the repository they are `gym:tests.tasks:NoisyLock-v0`, `gym:tests.tasks:KeyDoor-v0` and
`gym:tests.tasks:DistractorChain-v0`. `tests.tasks.logs` writes states of their behaviour policies.
"""

import gymnasium

HORIZONS = {"NoisyLock-v0": 12, "KeyDoor-v0": 30, "DistractorChain-v0": 20}

gymnasium.register("NoisyLock-v0", "tests.tasks.noisy_lock:NoisyLock", max_episode_steps=HORIZONS["NoisyLock-v0"])
gymnasium.register("KeyDoor-v0", "tests.tasks.key_door:KeyDoor", max_episode_steps=HORIZONS["KeyDoor-v0"])
gymnasium.register(
    "DistractorChain-v0",
    "tests.tasks.distractor_chain:DistractorChain",
    max_episode_steps=HORIZONS["DistractorChain-v0"],
)
