"""What of a run may be seen and kept: secrets masked by name, by pattern, and by the exact values a plan knows. Pure.

Everything that leaves the executor (a run's details and messages, the audit) has gone through one `Masker`. Exact
values are known in the forms in which programs print them: percent-encoded, base64, inside JSON, quoted for a shell.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sparktop import sanitise
from sparktop.model.operation import Command, DockerCall, Expect, ImagePull, Operation, Signal, Transfer
from sparktop.operate.secretforms import forms
from sparktop.probe.remote import MASK, is_secret_name, mask_argv, mask_text

SHORT_CHARS = 6
"""A shorter value is masked only where it stands as a word of its own: "a" in every word would leave no text."""
MAX_BODY_CHARS = 16 * 1024
_CONTAINER_ID = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


class Masker:
    """Masks for one run."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """`secrets` are exact values, as `Plan.secrets` has them."""
        values = {value for value in secrets if value.strip()}
        long = {value for value in values if len(value) >= SHORT_CHARS}
        found = {form for value in long for form in forms(value) if len(form) >= SHORT_CHARS}
        self._forms = sorted(found, key=len, reverse=True)
        self._edges = sorted(long, key=len, reverse=True)
        words = "|".join(re.escape(value) for value in sorted(values - long, key=len, reverse=True))
        self._words = re.compile(rf"(?<![\w]){'(?:' + words + ')'}(?![\w])") if words else None

    def __repr__(self) -> str:
        return f"Masker({len(self._edges)} values)"

    def text(self, text: str) -> str:
        """One line fit to be shown and kept: no secret, no control; a line break is shown as one unknown character."""
        return sanitise.line(self.exact(text))

    def exact(self, text: str) -> str:
        """The same without a look at controls: for what JSON escapes."""
        for form in self._forms:
            text = text.replace(form, MASK)
        if self._words is not None:
            text = self._words.sub(MASK, text)
        return mask_text(self._cut(text))

    def _cut(self, text: str) -> str:
        """The end of a program's output may begin in the middle of a secret, or a limit have cut one short."""
        for value in self._edges:
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
        """An argv as a list, each argument as it is but for secrets."""
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
            if name.rpartition(".")[2] == "Env":  # an environment's values are their owner's, whatever their names
                return [f"{self.exact(str(item).partition('=')[0])}={MASK}" for item in value]
            if all(isinstance(item, str) for item in value):
                return self.argv(value)
            return [self.data(item) for item in value]
        return value if value is None or isinstance(value, bool | int | float) else self.exact(str(value))


def described(operation: Operation, masker: Masker) -> dict[str, Any]:
    """An operation as JSON-ready data for the audit: exact, but for secrets. What goes into files is not told."""
    match operation:
        case Command():
            told: dict[str, Any] = {"argv": masker.argv(operation.argv), "privilege": str(operation.privilege)}
            if operation.environment:
                told["environment"] = sorted(masker.exact(name) for name in operation.environment)
            if operation.content:
                told["content_bytes"] = len(operation.content.encode("utf-8", "replace"))
            return told | {"limit_s": operation.limit_s}
        case Signal():
            return {
                "argv": masker.argv(operation.argv),
                "privilege": str(operation.privilege),
                "only_if_started_ticks": operation.started_ticks,
            }
        case DockerCall():
            told = {"docker": f"{operation.method} {masker.exact(operation.path)}"}
            if operation.query:
                told["query"] = masker.data(operation.query)
            if operation.body is not None:
                body = masker.data(operation.body)
                text = json.dumps(body, ensure_ascii=False)
                told["body"] = body if len(text) <= MAX_BODY_CHARS else f"{len(body)} fields, {len(text)} characters"
            return told | {"limit_s": operation.limit_s}
        case Expect():
            return {"expect": masker.exact(operation.path), "equals": masker.data(operation.equals)}
        case ImagePull():
            return {"pull": masker.exact(operation.image), "limit_s": operation.limit_s}
        case Transfer():
            told = {"transfer": masker.exact(operation.key), "grows": masker.exact(operation.grows)}
            if operation.total_bytes is not None:
                told["total_bytes"] = operation.total_bytes
            return described(operation.command, masker) | told


def shown(operation: Operation, masker: Masker | None = None) -> str:
    """An operation as one line to read: `sudo` before what needs root, container ids at 12 digits."""
    masker = masker or Masker()
    told = described(operation, masker)
    if "argv" in told:
        names = "".join(f"{shlex.quote(name)}={MASK} " for name in told.get("environment", ()))
        line = f"{'sudo ' if told['privilege'] == 'root' else ''}{names}{shlex.join(told['argv'])}"
    elif "pull" in told:
        line = f"docker pull {shlex.quote(told['pull'])}"
    elif "docker" in told:
        query = "&".join(f"{key}={value}" for key, value in told.get("query", {}).items())
        line = f"{told['docker']}{'?' + query if query else ''}"
    else:
        facts = ", ".join(f"{key} = {json.dumps(value)}" for key, value in told["equals"].items())
        line = f"GET {told['expect']} must say {facts}"
    return masker.text(_CONTAINER_ID.sub(r"\1", line))
