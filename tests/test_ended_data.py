"""States of episodes that ended before the horizon."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyrlo.core.errors import DataError
from hyrlo.data.minari import states_of_episodes
from hyrlo.data.states import ObservationDataset
from tests.logs import episodes_of_any_length, few, same_steps

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*None:UserWarning"),  # Minari asks for author, e-mail and so on
    pytest.mark.usefixtures("minari_home"),
]


def numbered(*counts):
    return ObservationDataset(tuple(np.arange(2.0 * n, dtype=np.float32).reshape(n, 2) + 1 for n in counts), "walk")


def test_ended_episodes_are_kept_in_an_absorbing_state():
    data = numbered(4, 4, 2, 1)
    flagged = data.with_ended(5)
    assert (flagged.horizon, flagged.observation_size, flagged.source) == (5, 3, "walk")
    for h, going in enumerate([4, 4, 2, 1, 0, 0]):
        states = flagged.at(h)
        assert states.shape == (4, 3)
        assert states.dtype == np.float32
        if going:
            np.testing.assert_array_equal(states[:going, :2], data.at(h))
        assert not states[:going, 2].any()
        assert (states[going:] == [0, 0, 1]).all()


@pytest.mark.parametrize("counts", [(3, 3, 3), (3, 2, 4), (1, 2, 3), (3, 1, 2)])
def test_without_ended_episodes_the_flag_is_zero_everywhere(counts):
    data = numbered(*counts)
    flagged = data.with_ended(2)
    for h, n in enumerate(counts):
        assert flagged.at(h).shape == (n, 3)
        np.testing.assert_array_equal(flagged.at(h)[:, :2], data.at(h))
        assert not flagged.at(h)[:, 2].any()
    with pytest.raises(DataError, match=r"walk: has timesteps 0 … 2 but the horizon is 3.*--horizon 2"):
        data.with_ended(3)


def test_a_shorter_horizon_takes_the_first_steps():
    assert [len(s) for s in numbered(5, 3, 2).with_ended(1).steps] == [5, 5]
    assert [len(s) for s in numbered(3, 2, 4).with_ended(1).steps] == [3, 2]  # 4 says: not episodes


@few
@given(episodes=episodes_of_any_length(), more=st.integers(0, 3))
def test_every_episode_is_somewhere_at_every_step(episodes, more):
    data = states_of_episodes(episodes, "walk", check_finite=True)
    ended = len({len(e) for e in episodes}) > 1
    flagged = data.with_ended(data.horizon + more * ended)
    for h, states in enumerate(flagged.steps):
        assert len(states) == len(episodes)
        assert states[:, -1].sum() == sum(len(e) <= h for e in episodes)


def test_ended_data_survive_saving(tmp_path):
    flagged = numbered(4, 2, 1).with_ended(4)
    flagged.save(tmp_path / "a.npz")
    same_steps(ObservationDataset.load(tmp_path / "a.npz"), flagged.steps)
    numbered(4, 2, 1).save(tmp_path / "a.npz")
    assert ObservationDataset.load(tmp_path / "a.npz").with_ended(4).fingerprint() == flagged.fingerprint()


def test_a_step_without_states_stays_an_error():
    with pytest.raises(DataError, match="timestep 1 has no states"):
        numbered(3, 0, 2)
