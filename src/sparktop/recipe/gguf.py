"""Which .gguf files of a repository llama.cpp loads, by ORG/NAME[:QUANT] as its own `-hf` chooses them. Pure.

A quant stands in a file's path before a dot or a dash, in upper or lower case. Without one it is Q4_K_M, else Q8_0,
else the first file. A model in parts is named by its first. An image encoder ("mmproj") comes with it, where there is
one. Where llama.cpp takes the first of several that match, nothing is chosen.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container, Iterable, Sequence

from sparktop.dataclass import dataclass

ENDING = ".gguf"
PARTS_AT_MOST = 256
_USUAL = ("Q4_K_M", "Q8_0")
_BESIDE = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
"""In the names of files that llama.cpp loads with a model, never as one."""
_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.+/-]*\.gguf", re.IGNORECASE)
"""A name that is safe in an argv and as a part of a path."""
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
_ENCODERS = ("f16", "bf16", "f32", "")
"""Of several the first: sparkrun's order."""
_NO_ENCODER = ("false", "none", "off", "no", "0", "disable", "disabled")
_ANY_ENCODER = ("", "auto", "true", "1", "yes")
_NAMED_AT_MOST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a recipe asks for."""

    repository: str
    quant: str = ""
    """Empty: the usual one."""
    encoder: str = ""
    """A part of the image encoder's name; empty: whichever there is; "none": it isn't loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The files that are loaded."""

    weights: tuple[str, ...] = ()
    """The one that the engine is told first, then the model's other parts."""
    encoder: str = ""
    problem: str = ""
    """Why there are none."""

    @property
    def files(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.weights, self.encoder) if self.encoder else self.weights


def wanted(model: str, encoder: str = "") -> Wanted:
    """What "ORG/NAME:QUANT" asks for; `encoder`: the recipe's `mmproj`."""
    repository, _, quant = model.partition(":")
    encoder = encoder.strip().lower()
    if encoder in _NO_ENCODER:
        encoder = "none"
    return Wanted(repository=repository, quant=quant, encoder="" if encoder in _ANY_ENCODER else encoder)


def choice(names: Iterable[str], ask: Wanted) -> Choice:
    """The files to load, of a repository's; none with a problem where they can't be told."""
    ours = sorted(filter(_NAME.fullmatch, names))
    models = [name for name in ours if not any(word in posixpath.basename(name).lower() for word in _BESIDE)]
    firsts = [name for name in models if is_first(name)]
    quants = (ask.quant,) if ask.quant else _USUAL
    matching = next(filter(None, (_of_quant(firsts, quant) for quant in quants)), firsts[:1] if not ask.quant else [])
    if not matching:
        of_quant = f" of the quant {ask.quant}" if ask.quant else ""
        return Choice(problem=f"{ask.repository} has no .gguf model{of_quant}{_named(firsts)}")
    if len(matching) > 1:
        problem = f"{len(matching)} models of {ask.repository} match" + (f" the quant {ask.quant}" if ask.quant else "")
        return Choice(problem=problem + _named(matching))
    encoder = ""
    if ask.encoder != "none":
        encoders = [name for name in ours if "mmproj" in posixpath.basename(name).lower()]
        words = (ask.encoder,) if ask.encoder else _ENCODERS
        encoder = next(filter(None, (_encoder(encoders, word) for word in words)), "")
        if ask.encoder and not encoder:
            return Choice(problem=f"{ask.repository} has no image encoder {ask.encoder}{_named(encoders)}")
    return Choice(weights=parts(matching[0]), encoder=encoder)


def parts(first: str) -> tuple[str, ...]:
    """All files of a model that its first file names."""
    if not (part := _PART.fullmatch(first)):
        return (first,)
    ending = first[-len(ENDING) :]
    return tuple(f"{part[1]}-{number:05}-of-{part[3]}{ending}" for number in range(1, int(part[3]) + 1))


def is_first(name: str) -> bool:
    """Whether it is a whole model, or the first of its parts."""
    part = _PART.fullmatch(name)
    return part is None or (int(part[2]) == 1 and 0 < int(part[3]) <= PARTS_AT_MOST)


def is_model(path: str) -> bool:
    """Whether llama.cpp can be told this file."""
    return path.lower().endswith(ENDING) and is_first(path)


def lacks(files: Choice, there: Container[str]) -> Choice:
    """The choice where a repository has all of it, else why there is none."""
    missing = [name for name in files.weights if name not in there]
    return Choice(problem=f"the repository lacks parts of this model{_named(missing)}") if missing else files


def _of_quant(firsts: Sequence[str], quant: str) -> list[str]:
    pattern = re.compile(rf"(?<![^\W_]){re.escape(quant)}[.-]", re.IGNORECASE)  # F16 is not BF16
    return [name for name in firsts if pattern.search(name)]


def _encoder(encoders: Sequence[str], word: str) -> str:
    pattern = re.compile(rf"(?<![^\W_]){re.escape(word)}", re.IGNORECASE)
    return next((name for name in encoders if pattern.search(posixpath.basename(name))), "")


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_AT_MOST} more" if len(names) > _NAMED_AT_MOST else ""
    return f": {', '.join(names[:_NAMED_AT_MOST])}{more}" if names else ""
