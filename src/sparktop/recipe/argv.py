"""An engine's argv read and changed by its flags' plain names: dashes, underscores and aliases are one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparktop.diagnose.lint.arguments import is_flag, is_switch, plain
from sparktop.model.engine import EngineKind

_VLLM = {
    "tensor_parallel": "tensor-parallel-size",
    "pipeline_parallel": "pipeline-parallel-size",
    "data_parallel": "data-parallel-size",
}
_SGLANG = {
    "tensor_parallel": "tp-size",
    "pipeline_parallel": "pp-size",
    "data_parallel": "dp-size",
    "expert_parallel": "ep-size",
    "gpu_memory_utilization": "mem-fraction-static",
    "max_model_len": "context-length",
    "max_num_seqs": "max-running-requests",
    "chunked_prefill": "chunked-prefill-size",
}
_NEGATABLE = frozenset(
    ["enable-prefix-caching", "enable-chunked-prefill", "async-scheduling", "enable-flashinfer-autotune"]
)
"""Switches that vLLM has on by itself: off is `--no-NAME`."""
_MANY = frozenset({"served-model-name", "lora-modules", "lora-paths", "cuda-graph-bs", "cudagraph-capture-sizes"})


def flag_of(name: str, engine: EngineKind) -> str:
    """A parameter's flag ("tensor_parallel": "--tensor-parallel-size"), by sparkrun's names and the engine's own."""
    special = _SGLANG if engine is EngineKind.SGLANG else _VLLM
    return "--" + special.get(name, name.replace("_", "-"))


def words_of(name: str, value: str, engine: EngineKind, *, is_bool: bool = False) -> tuple[str, ...]:
    """A parameter as words of an argv; a switch as it is on or off, a value that begins with a dash joined by "="."""
    flag = flag_of(name, engine)
    if is_bool or is_switch(flag.lstrip("-")):
        if value.lower() in ("true", ""):
            return (flag,)
        if value.lower() == "false":
            is_on_by_itself = engine is EngineKind.VLLM and flag.lstrip("-") in _NEGATABLE
            return (f"--no-{flag.lstrip('-')}",) if is_on_by_itself else ()
    return (f"{flag}={value}",) if value.startswith("-") else (flag, value)


def value_of(argv: Sequence[str], *names: str) -> str | None:
    """A flag's value, "" of a switch; None where it isn't there. The last one counts."""
    wanted = {plain(name) for name in names}
    found = None
    for start, end in _occurrences(argv, wanted):
        joined = argv[start].partition("=")
        found = joined[2] if joined[1] else argv[start + 1] if end > start + 1 else ""
    return found


def has(argv: Sequence[str], *names: str) -> bool:
    """Whether a flag is given at all."""
    return value_of(argv, *names) is not None


def without(argv: Sequence[str], *names: str) -> tuple[str, ...]:
    """The argv without these flags, their `--no-` forms and their values."""
    wanted = {plain(name) for name in names}
    wanted |= {f"no-{name}" for name in wanted} | {name.removeprefix("no-") for name in wanted}
    gone = {at for start, end in _occurrences(argv, wanted) for at in range(start, end)}
    return tuple(word for at, word in enumerate(argv) if at not in gone)


def placed(argv: Sequence[str], words: Sequence[str], *names: str) -> tuple[str, ...]:
    """The argv with these words in the place of the flags of these names, at its end where there are none."""
    wanted = {plain(name) for name in names}
    found = list(_occurrences(argv, wanted | {f"no-{name}" for name in wanted}))
    if not found:
        return (*argv, *words)
    first = found[0][0]
    kept = without(argv[first:], *names)
    return (*argv[:first], *words, *kept)


def _occurrences(argv: Sequence[str], wanted: Iterable[str]) -> Iterable[tuple[int, int]]:
    """(index of the flag, index behind its last value) of each flag of these plain names."""
    wanted = set(wanted)
    at = 0
    while at < len(argv):
        word = argv[at]
        name = plain(word.partition("=")[0]) if is_flag(word) else ""
        end = at + 1
        if name and "=" not in word and not is_switch(name):
            limit = len(argv) if name in _MANY else end + 1
            while end < min(limit, len(argv)) and not is_flag(argv[end]):
                end += 1
        if name in wanted:
            yield at, end
        at = end
