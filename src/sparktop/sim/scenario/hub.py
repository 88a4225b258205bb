"""The catalogue of the simulated world: models of its hub and images of its registries, read from hub.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from sparktop.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model in the hub's repository."""

    name: str
    revision: str
    """The commit that "main" points to."""
    shards: int
    other_bytes: int
    """Tokenizer, configuration and other small files."""
    tokens_s: float
    """Tokens per second of one stream, with CUDA graphs."""
    dtypes: Mapping[str, int]
    """Bytes of its tensors, by the safetensors format's type names."""
    config: Mapping[str, Any] = field(repr=False)
    first_shard: int = 1
    spike_gib: float | None = None
    """Memory its first request takes, where graphs are captured and kernels compiled then."""
    beside: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The same weights again, for other programs: {name of the files: (how many, bytes together)}."""

    @property
    def weights_bytes(self) -> int:
        return sum(self.dtypes.values())

    @property
    def size_bytes(self) -> int:
        """Of what an engine needs."""
        return self.weights_bytes + self.other_bytes

    @property
    def longest_tokens(self) -> int:
        text = self.config.get("text_config", self.config)
        return int(text["max_position_embeddings"])

    def shard_names(self) -> list[str]:
        """The files of its weights."""
        if self.shards == 1:
            return ["model.safetensors"]
        last = self.first_shard + self.shards - 1
        return [f"model-{number:05d}-of-{last:05d}.safetensors" for number in range(self.first_shard, last + 1)]

    def files(self) -> Iterator[tuple[str, int]]:
        """(path, bytes) of all that its repository has."""
        yield "config.json", 2_400
        yield "tokenizer.json", self.other_bytes - 2_400
        names = self.shard_names()
        shard_bytes = self.weights_bytes // self.shards
        for name in names[:-1]:
            yield name, shard_bytes
        yield names[-1], self.weights_bytes - shard_bytes * (self.shards - 1)
        for name, (count, size) in self.beside.items():
            for number in range(1, count + 1):
                yield (name % number if "%" in name else name), size // count


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image with an engine in it."""

    name: str
    kind: str
    """ "vllm" or "sglang"."""
    version: str
    """Of the engine."""
    created: str
    packed_bytes: int
    """What comes from the registry."""
    size_bytes: int
    layers: int
    is_local: bool = False
    """Made on the machine: no registry has it."""


def model(name: str) -> Model | None:
    """By its name, whatever its case."""
    return _models().get(name.lower())


def model_of_folder(path: str) -> Model | None:
    """The one whose own name the last part of a path is."""
    last = path.rstrip("/").rpartition("/")[2].lower()
    return next((one for key, one in _models().items() if key.rpartition("/")[2] == last), None)


def image(name: str) -> Image | None:
    return _images().get(name)


@cache
def _models() -> dict[str, Model]:
    models = (
        Model(**{**row, "beside": {name: tuple(figures) for name, figures in row.get("beside", {}).items()}})
        for row in _read()["models"]
    )
    return {model.name.lower(): model for model in models}


@cache
def _images() -> dict[str, Image]:
    return {row["name"]: Image(**row) for row in _read()["images"]}


@cache
def _read() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("hub.toml").read_text("utf-8"))
