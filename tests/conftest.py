"""Shared fixtures. The tests run against the installed package: only this folder is read from the clone."""
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.fixture_paths import TINY, TINY_MODELS

# no test asserts a time
settings.register_profile("pantheon", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pantheon")


@pytest.fixture(scope="session")
def default_model():
    """Path of the default model, SmolLM2-135M-Instruct Q4_1: from the user's cache, fetched into it the first time."""
    from pantheon import hub

    return hub.fetch()


@pytest.fixture(params=TINY_MODELS)
def tiny(request):
    """Path of each tiny model in turn."""
    return TINY / f"{request.param}.gguf"


@pytest.fixture
def llama():
    """Path of one tiny model, for tests that any model serves."""
    return TINY / "llama3.gguf"


@pytest.fixture(scope="session", autouse=True)
def installed_package(tmp_path_factory):
    """A source tree in front of the installed wheel would hide what it lacks. PANTHEON_TEST_IN_PLACE=1: allow it.

    Child processes look for modules where they start, so the tests run in a folder of their own.
    """
    import pantheon

    if "PYTHONPATH" in os.environ:          # of this folder, not of the one that children start in
        os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, os.environ["PYTHONPATH"].split(os.pathsep)))
    os.chdir(tmp_path_factory.mktemp("away"))
    root = Path(__file__).resolve().parent.parent
    in_place = Path(pantheon.__file__).resolve().is_relative_to(root / "pantheon")
    assert not in_place or os.environ.get("PANTHEON_TEST_IN_PLACE") == "1", "pantheon was imported from the source tree"
