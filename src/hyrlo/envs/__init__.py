"""Environments by name: `make("lock", horizon=100)`, `make("gym:CartPole-v1")`; a world is loaded when it is made.

Importing this package registers the lock with Gymnasium.
"""

import gymnasium

from hyrlo.envs.registry import ENVIRONMENTS, LOCK_ID, Environment, make, traits_of
from hyrlo.envs.world import Traits, World

__all__ = ["ENVIRONMENTS", "Environment", "Traits", "World", "make", "traits_of"]

if LOCK_ID not in gymnasium.registry:
    gymnasium.register(
        LOCK_ID,
        entry_point="hyrlo.envs.lock_gym:CombinationLock",
        vector_entry_point="hyrlo.envs.lock_gym:VectorCombinationLock",
    )
