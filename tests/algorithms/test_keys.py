"""Random keys: every purpose has its own."""

import jax
import numpy as np
import pytest

from hyrlo.core.jax_model import JaxResetModel, JaxTraceModel
from hyrlo.core.keys import Keys
from hyrlo.envs import lock
from hyrlo.theory.discounted import DiscountedInteractiveModel, DiscountedTraceModel
from tests.algorithms import contract

NAMES = (
    "forward",
    "explore",
    "backward",
    "train",
    "curve",
    "evaluation",
    "data",
    "rollout",
    "collect",
    "fit",
    "update",
)


def words(key):
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def test_names_and_numbers_never_share_a_key():
    key = jax.random.key(3)
    keys = [getattr(Keys(key), name) for name in NAMES]
    keys += [Keys(key).at(h)._key for h in range(200)]
    assert len({words(k) for k in keys}) == len(keys)
    splits = {words(k) for n in (2, 3, 4, 200) for k in jax.random.split(key, n)}
    assert not splits & {words(k) for k in keys[: len(NAMES)]}


def test_a_name_gives_the_same_key_always():
    assert words(Keys.of_seed(7).forward) == words(Keys(jax.random.key(7)).forward)
    assert words(Keys.of_seed(7).at(2, 5).fit) == words(Keys(jax.random.fold_in(Keys.of_seed(7).at(2)._key, 5)).fit)
    assert words(Keys.of_seed(7).forward) != words(Keys.of_seed(8).forward)


@pytest.mark.slow
@pytest.mark.parametrize("algo", sorted(contract.VARIANTS))
def test_no_two_roll_outs_share_a_key(algo, monkeypatch):
    """Training, curve, evaluation and data, of every algorithm."""
    used, playing = [], []

    def spy(owner, name, position):
        original = getattr(owner, name)

        def spied(*args, **kwargs):
            if not playing:  # a model may pass its key on to the model it is made of
                used.append(words(args[position]))
            playing.append(name)
            try:
                return original(*args, **kwargs)
            finally:
                playing.pop()

        monkeypatch.setattr(owner, name, spied)

    for model in (JaxTraceModel, JaxResetModel, DiscountedTraceModel, DiscountedInteractiveModel):
        for name in ("rollout", "record", "rollout_from", "roll_in", "offline_next"):
            if name in vars(model):
                spy(model, name, 1)
    spy(lock, "_behave", 1)
    contract.train(algo, None)
    assert len(used) >= 3
    repeated = {key for key in used if used.count(key) > 1}
    assert not repeated, f"{len(repeated)} of {len(used)} keys are used more than once"
