"""Dockerfiles, as far as they start an engine: FROM, ENV, ENTRYPOINT and CMD."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from sparktop.diagnose.lint.dockerrun import DockerRun, variable
from sparktop.diagnose.lint.launches import Scope, container_spec, read_container
from sparktop.diagnose.lint.place import Document, Word
from sparktop.diagnose.lint.shellwords import plain_words
from sparktop.diagnose.lint.spec import LaunchSpec, SourceKind

_INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)[ \t]+((?:\\\r?\n|[^\n])*)")


def read_dockerfile(document: Document) -> list[LaunchSpec]:
    """The engine a Dockerfile's last stage starts."""
    run = DockerRun(has_env_file=True)  # whoever runs the image may add more
    command: list[Word] = []
    entrypoint: list[Word] = []
    begin: Word | None = None
    for name, value in _instructions(document):
        if name == "FROM":
            words = [word for word in plain_words(value, {}) if not word.text.startswith("--")]
            run, command, entrypoint = DockerRun(has_env_file=True), [], []
            run.image = begin = words[0] if words else None
        elif name == "ENV":
            words = plain_words(value, {})
            run.environment += [variable(word) for word in words if "=" in word.text]
        elif name == "CMD":
            command = _words(value)
        elif name == "ENTRYPOINT":
            entrypoint = _words(value)
    scope = Scope(document=document, kind=SourceKind.DOCKERFILE)
    base = replace(container_spec(run, scope, begin), has_container=None)
    if entrypoint or command:
        read_container(base, entrypoint[0] if entrypoint else None, [*entrypoint[1:], *command], scope)
    return scope.found


def _instructions(document: Document) -> Iterator[tuple[str, Word]]:
    at = 0
    while at < len(document.text):
        match = _INSTRUCTION.match(document.text, at)
        if match and not document.text[at:].lstrip(" \t").startswith("#"):
            yield match[1].upper(), document.whole.part(match.start(2), match.end(2))
            at = match.end()
        end = document.text.find("\n", at)
        at = len(document.text) if end < 0 else end + 1


def _words(value: Word) -> list[Word]:
    """The exec form's words, or the shell form's as one text for `sh -c`."""
    text = value.text.strip()
    if text.startswith("["):
        try:
            listed = json.loads(text)
        except (ValueError, RecursionError):
            return []
        if not isinstance(listed, list):
            return []
        # Plain words of the same text give the places; the brackets and commas are taken off.
        found, at = [], 0
        for each in listed:
            quoted = json.dumps(str(each))
            start = value.text.find(quoted, at)
            at = start + len(quoted) if start >= 0 else at
            placed = value.part(start + 1, at - 1) if start >= 0 and "\\" not in quoted else None
            found.append(placed or Word(str(each)))
        return found
    return [Word("sh"), Word("-c"), value]
