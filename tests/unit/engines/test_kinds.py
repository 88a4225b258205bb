"""Each engine's file: it can be read, names what exists, and what it recognises is its own."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping

from tests.table import over

from sparktop.cmdline.engine_command import kind_of_image, of_process
from sparktop.diagnose.logs.engine_state import Phase, wordings
from sparktop.engines.metrics import METRICS, paths_of, sources_of
from sparktop.model.engine import EngineKind, EngineMetrics
from sparktop.model.kinds.engine_kind import FOLDER, EngineTraits
from sparktop.probe.remote import scanner
from sparktop.probe.remote.installed import _STARTS_ENGINE

KINDS = list(EngineKind)
SHAPES = {"str": str, "int": int, "bool": bool, "tuple": tuple, "Mapping": Mapping}


def test_every_file_is_an_engine() -> None:
    assert {kind.value for kind in KINDS} == {file.stem for file in FOLDER.glob("*.toml")}


@over("kind", KINDS)
def test_a_file_says_what_can_be_used(kind: EngineKind) -> None:
    traits = kind.traits
    for each in dataclasses.fields(EngineTraits):
        assert isinstance(getattr(traits, each.name), SHAPES[str(each.type).partition("[")[0]]), each.name
    figures = set(typing.get_type_hints(EngineMetrics))
    assert set(sources_of(kind)) <= figures
    assert {f"{name}_buckets" for name in traits.histograms} <= figures
    assert {row["word"] for row in traits.line} == {one.word for one in wordings() if one.kind is kind}
    assert all(set(row) - {"word", "pattern"} <= set(typing.get_type_hints(Phase)) for row in traits.line)
    asked = {*paths_of(kind), *(text.partition(" ")[0] for text in traits.texts.values())}
    assert asked <= {METRICS, "/version", *traits.asks}
    assert all(seconds >= 1.0 for seconds in traits.asks.values())


@over("kind", KINDS)
def test_its_programs_are_its_own_and_seen_by_the_probe(kind: EngineKind) -> None:
    for program in kind.traits.programs:
        found = of_process([f"/opt/{program.split()[0]}", *program.split()[1:], "--port", "9"])
        assert found is not None
        assert (found.kind, found.port) == (kind, 9)
        if not program.endswith("--server"):  # a shell script: its server is a process of its own
            assert re.search(scanner.ENGINE_COMMAND, f"/opt/{program} --port 9")
            assert scanner._CANDIDATE_COMM.match(program.split()[0])
            assert _STARTS_ENGINE.search(f"ExecStart=/opt/{program}".encode())
    assert all(kind_of_image(f"example.org/{image}:1") is kind for image in kind.traits.images)
