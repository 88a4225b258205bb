"""A recipe for the tests' own engine, and its model in the cache of a machine's user."""

from __future__ import annotations

from pathlib import Path

from tests.integration.launch_support import cache_with_model, text_of
from tests.real.machine import Machine


def recipe(machine: Machine, *, options: str = "") -> Path:
    """The file, in this test's home; the model that it names is put on the machine."""
    cache_with_model(machine.root / "home/spark/.cache/huggingface")
    machine.run("chown", "--recursive", "spark:spark", "/home/spark/.cache")
    file = Path.home() / "tiny.yaml"
    file.write_text(text_of(8000, options=options))
    return file
