"""What `explain` says first of failing starts and a death of a real vLLM 0.32.0 (CPU), by the lines that tell."""

from __future__ import annotations

from pathlib import Path

from tests.table import over

from sparktop.diagnose.explain import Explanation
from sparktop.diagnose.findings import families
from sparktop.diagnose.logs.rule import shipped

LOGS = Path(__file__).parents[3] / "cases" / "engine_logs" / "vllm-0.32.0"
CAUSES = {
    # `vllm serve` given twice, as the image's entrypoint and as its command.
    "serve-twice": ("cli.serve-twice", "twice"),
    "removed-flags": ("cli.removed-flag", "--swap-space 4 --cuda-graph-sizes 1 2"),
    # `kill -9` of the EngineCore under two requests; the API server exits with 0.
    "killcore": ("engine.died-serving", "engine core"),
    # tokenizer.json and config.json cut off; a --config file that is no YAML.
    "badtok": ("model.tokenizer-gives-nothing", "tokenizer"),
    "emptyconf": ("model.config-file-broken", "/models/emptyconf/config.json"),
    "badyaml": ("engine.last-words", "/models/bad.yaml"),
    # --port 70000, --max-num-seqs 0, a graph mode and a dtype that don't exist.
    "port70000": ("engine.last-words", "port must be 0-65535"),
    "seqs0": ("vllm.config-invalid", "SchedulerConfig"),
    "cc": ("engine.last-words", "CUDAGraphMode"),
    "dtype": ("engine.last-words", "float7"),
}


def test_every_capture_has_its_cause() -> None:
    assert {path.stem for path in LOGS.iterdir()} == set(CAUSES)


@over("name, cause", CAUSES.items(), ids=CAUSES)
def test_the_cause_is_one_block(name: str, cause: tuple[str, str]) -> None:
    explanation = Explanation(name, shipped())
    explanation.feed((LOGS / f"{name}.log").read_bytes())
    (family,) = families(explanation.finish())
    rule, word = cause
    assert family[0].rule == rule
    assert word in family[0].title
    assert family[0].evidence[0].line is not None
