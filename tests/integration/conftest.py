"""Fixtures that live as long as the run; those for one test are imported by the module that uses them."""

from __future__ import annotations

from tests.integration.dockerd import dockerd  # noqa: F401 - pytest finds it here, and starts it once
from tests.integration.engine_image import engine_image, engines  # noqa: F401 - imported once into that engine
