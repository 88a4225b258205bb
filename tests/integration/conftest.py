"""Fixtures that live as long as the run; those for one test are imported by the module that uses them."""

from __future__ import annotations

import shutil

import pytest
from tests.integration.dockerd import dockerd  # noqa: F401 - pytest finds it here, and starts it once
from tests.integration.engine_image import engine_image, engines  # noqa: F401 - imported once into that engine
from tests.integration.sshd import STARTED


@pytest.fixture(autouse=True)
def _nothing_noted() -> None:
    """What another test's run has noted on a server that they share is no interrupted run of this one."""
    for server in STARTED:
        shutil.rmtree(server.state, ignore_errors=True)
