"""The extension that most tests here call."""
from pathlib import Path

import pytest
from support.extensions import build, load


@pytest.fixture(scope="session")
def probe(tmp_path_factory):
    """probe.pyx: calls as another extension makes them, good ones and careless ones."""
    folder = tmp_path_factory.mktemp("probe")
    return load(build(folder, "probe", Path(__file__).with_name("probe.pyx").read_text()), "probe")
