"""Masks secrets in what a run shows and keeps, by value and by pattern; operations as masked audit entries."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from sparktop import sanitise
from sparktop.masking import MASK, is_secret, is_secret_name, mask_argv, mask_text
from sparktop.model.operation import Command, DockerCall, Expect, ImagePull, Operation, Signal, Transfer
from sparktop.sanitise import items

LINE_CHARS = 8
"""The shortest line of a multi-line secret that is looked for by itself."""


def forms(value: str) -> tuple[str, ...]:
    """The value in all forms in which programs print it, each once, longest first; none is empty."""
    distinct = dict.fromkeys(form for form in _forms(value) if form.strip())
    return tuple(sorted(distinct, key=lambda form: (-len(form), form)))


def _forms(value: str) -> Iterator[str]:
    yield value
    yield sanitise.line(value, limit=4 * len(value) + 1)
    for ascii_only in (True, False):
        escaped = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield escaped
        yield json.dumps(escaped, ensure_ascii=ascii_only)[1:-1]
    yield from (quote(value, errors="replace"), quote(value, safe="", errors="replace"))
    yield quote_plus(value, errors="replace")
    yield shlex.quote(value)
    yield shlex.quote(value)[1:-1] if "'" in value else value
    yield repr(value)[1:-1]
    raw = value.encode("utf-8", "replace")
    yield from (raw.hex(), raw.hex().upper())
    yield from _base64(raw)
    lines = value.splitlines()
    if len(lines) > 1:  # a multi-line key is printed line by line
        yield from (line.strip() for line in lines if len(line.strip()) >= LINE_CHARS)


def _base64(raw: bytes) -> Iterator[str]:
    """What is constant in the base64 of any text that holds the value, for each of its three alignments."""
    for shift in range(3):
        whole = (shift + len(raw)) // 3 * 3
        """Bytes of whole groups; the rest mixes with what follows the value."""
        first = -(-shift * 4 // 3)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * shift + raw).decode("ascii").rstrip("=")
            yield text[first : max(first, whole * 4 // 3)]
            if shift == 0:
                yield text


SHORT_CHARS = 6
"""A shorter value is masked only as a word of its own: masking "a" everywhere would leave no text."""
MAX_BODY_CHARS = 16 * 1024


class Masker:
    """Masks the secrets of one run."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """`secrets` are exact values, as `Plan.secrets` has them."""
        values = {value for value in secrets if value.strip()}
        long_values = {value for value in values if len(value) >= SHORT_CHARS}
        long_forms = {form for value in long_values for form in forms(value) if len(form) >= SHORT_CHARS}
        self._forms = sorted(long_forms, key=len, reverse=True)
        self._long_values = sorted(long_values, key=len, reverse=True)
        short_values = "|".join(re.escape(value) for value in sorted(values - long_values, key=len, reverse=True))
        self._short_pattern = re.compile(rf"(?<![\w]){'(?:' + short_values + ')'}(?![\w])") if short_values else None

    def __repr__(self) -> str:
        return f"Masker({len(self._long_values)} values)"

    def text(self, text: str) -> str:
        """One line fit to be shown and kept: no secret, no control character; a line break becomes one replacement
        character."""
        return sanitise.line(self.exact(text))

    def exact(self, text: str) -> str:
        """The text with secrets masked and control characters left in: for JSON, which escapes them."""
        for form in self._forms:
            text = text.replace(form, MASK)
        if self._short_pattern is not None:
            text = self._short_pattern.sub(MASK, text)
        return mask_text(self._mask_cut(text))

    def _mask_cut(self, text: str) -> str:
        """Mask a secret that was cut: the end of a program's output may begin in the middle of one, or a limit cut it
        short."""
        for value in self._long_values:
            for size in range(len(value) - 1, SHORT_CHARS - 1, -1):
                if text.startswith(value[-size:]):
                    text = MASK + text[size:]
                    break
            for size in range(len(value) - 1, SHORT_CHARS - 1, -1):
                if text.endswith(value[:size]):
                    text = text[:-size] + MASK
                    break
        return text

    def argv(self, argv: Iterable[str]) -> list[str]:
        """An argv with secrets masked."""
        return [self.exact(argument) for argument in mask_argv(argv)]

    def data(self, value: Any, name: str = "") -> Any:
        """JSON-ready data with secrets masked, by the names of its keys too."""
        if isinstance(value, Mapping):
            return {self.exact(str(key)): self.data(item, str(key)) for key, item in value.items()}
        if name and value is not None and not isinstance(value, bool) and is_secret_name(name):
            return MASK
        if isinstance(value, str):
            return self.exact(value)
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            if name.rpartition(".")[2] == "Env":  # an environment's values are private, whatever their names
                return [f"{self.exact(str(item).partition('=')[0])}={MASK}" for item in value]
            if all(isinstance(item, str) for item in value):
                return self.argv(value)
            return [self.data(item) for item in value]
        return value if value is None or isinstance(value, bool | int | float) else self.exact(str(value))


def operation_entry(operation: Operation, masker: Masker) -> dict[str, Any]:
    """An operation as JSON-ready data for the audit, secrets masked; file contents only by size."""
    match operation:
        case Command():
            entry: dict[str, Any] = {"argv": masker.argv(operation.argv), "privilege": str(operation.privilege)}
            if operation.environment:
                entry["environment"] = sorted(masker.exact(name) for name in operation.environment)
            if operation.content:
                entry["content_bytes"] = len(operation.content.encode("utf-8", "replace"))
            return entry | {"limit_s": operation.limit_s}
        case Signal():
            return {
                "argv": masker.argv(operation.argv),
                "privilege": str(operation.privilege),
                "only_if_started_ticks": operation.started_ticks,
            }
        case DockerCall():
            entry = {"docker": f"{operation.method} {masker.exact(operation.path)}"}
            if operation.query:
                entry["query"] = masker.data(operation.query)
            if operation.body is not None:
                body = masker.data(operation.body)
                text = json.dumps(body, ensure_ascii=False)
                entry["body"] = body if len(text) <= MAX_BODY_CHARS else f"{len(body)} fields, {len(text)} characters"
            return entry | {"limit_s": operation.limit_s}
        case Expect():
            return {"expect": masker.exact(operation.path), "equals": masker.data(operation.equals)}
        case ImagePull():
            return {"pull": masker.exact(operation.image), "limit_s": operation.limit_s}
        case Transfer():
            entry = {"transfer": masker.exact(operation.key), "grows": masker.exact(operation.grows)}
            if operation.total_bytes is not None:
                entry["total_bytes"] = operation.total_bytes
            return operation_entry(operation.command, masker) | entry


def secrets_of(config: Mapping[str, Any], more: Mapping[str, str | None] | None = None) -> tuple[str, ...]:
    """The secrets in a container's Config (as inspect and creation have it) and in variables to be set."""
    secret_values = [*_secret_values(_pairs(items(config.get("Env")))), *_secret_values((more or {}).items())]
    for key in ("Entrypoint", "Cmd"):
        secret_values += secret_words([str(word) for word in items(config.get(key))])
    labels = config.get("Labels")
    secret_values += (
        _secret_values((str(key), str(value)) for key, value in labels.items()) if isinstance(labels, Mapping) else ()
    )
    return tuple(dict.fromkeys(value for value in secret_values if value.strip()))


def secret_words(argv: Sequence[str]) -> list[str]:
    """The arguments, or the ends of arguments, that are masked."""
    return [
        word[len(masked) - len(MASK) :]
        for word, masked in zip(argv, mask_argv(argv), strict=True)
        if masked != word and masked.endswith(MASK) and word.startswith(masked.removesuffix(MASK))
    ]


def holds_secret(text: str, secrets: Iterable[str]) -> bool:
    """Whether a text has one of these in it, or what looks like one."""
    return mask_text(text) != text or any(len(secret) >= SHORT_CHARS and secret in text for secret in secrets)


def shown_value(name: str, value: str | None) -> str | None:
    """A variable's or flag's value, masked where it is a secret."""
    if value is None:
        return None
    if is_secret(name.lstrip("-"), value):
        return MASK
    return mask_text(value)


def _secret_values(pairs: Iterable[tuple[str, str | None]]) -> Iterator[str]:
    for name, value in pairs:
        if value is not None and is_secret(name, value):
            yield value


def _pairs(items: Iterable[object]) -> Iterator[tuple[str, str]]:
    for item in items:
        name, _, value = str(item).partition("=")
        yield name, value
