"""Redacts an archive of evidence: secrets by structure, by pattern, then by value wherever else they occur.

Two passes over all items together, because a value that `docker inspect` shows as HF_TOKEN may stand bare in a log
of the other node. First each item is masked by the probe's names and patterns (one set of rules everywhere), and the
values removed are remembered; then every remembered or known value is removed from every item, in the forms in which
programs print it. An item that can't be redacted is left out whole. The report counts removals and never shows a
value.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sparktop.masking import MASK, is_secret_name, mask_argv, mask_text
from sparktop.operate.secrets.masking import forms

LEARNT_CHARS = 6
"""A shorter value is removed in place and not looked for elsewhere: any text would match."""
FORM_CHARS = 5
"""What base64 leaves of the shortest value, at any alignment."""
LEARNT_AT_MOST = 300
BY_NAME = "named as a secret"
BY_PATTERN = "name or pattern in text"
BY_VALUE = "value of a secret found elsewhere"
BY_KEY_BLOCK = "private key"
BY_SERIAL = "serial number"
ON_THE_SPARK = "masked on the Spark already"

_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:(?!-----).){0,20000}(?:-----END [A-Z0-9 ]{0,40}-----)?", re.DOTALL
)
_SERIAL = re.compile(
    r"(?im)((?:^|[\s\"'])[\w ]{0,24}serial(?:[_ ]?(?:number|no))?\b[\"']?\s{0,40}[:=]\s{0,4}[\"']?)([\w-]{6,40})"
)
_COMMON = (
    "true false none null empty default auto enabled disabled required optional password secret token localhost "
    "user username changeme unknown <masked>"
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_NAMED_ENTRY = re.compile(r"([A-Za-z_][\w.-]{0,120})=(.*)", re.DOTALL)


class Redactor:
    """Redacts the items of one archive; `learn` on all of them first, then `finish` on each."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """`secrets`: exact values known beforehand, of any length."""
        self._values: dict[str, None] = {}
        self._short: dict[str, None] = {}
        self._sorted_forms: tuple[str, ...] | None = None
        self._short_pattern: re.Pattern[str] | None = None
        self.counts: Counter[tuple[str, str]] = Counter()
        """(item, rule) -> number of removals."""
        for secret in secrets:
            if len(secret.strip()) >= LEARNT_CHARS:
                self._values[secret] = None
            elif secret.strip():
                self._short[secret] = None
        if self._short:
            words = "|".join(re.escape(value) for value in sorted(self._short, key=len, reverse=True))
            self._short_pattern = re.compile(rf"(?<!\w)(?:{words})(?!\w)")

    def __repr__(self) -> str:
        return f"Redactor({len(self._values) + len(self._short)} values)"

    # --- first pass

    def learn_text(self, item: str, text: str) -> str:
        """The text without what names and patterns give away; the values are remembered."""
        self.counts[item, ON_THE_SPARK] += text.count(MASK)
        text, keys = _KEY_BLOCK.subn(self._key_block, text)
        self.counts[item, BY_KEY_BLOCK] += keys
        text, serials = _SERIAL.subn(lambda match: match.group(1) + MASK, text)
        self.counts[item, BY_SERIAL] += serials
        return self._by_pattern(item, text)

    def learn_data(self, item: str, data: Any) -> Any:
        """JSON-ready data without what the names of keys, variables and flags give away."""
        return self._redact_by_name(item, data, "")

    # --- second pass

    def finish_text(self, item: str, text: str) -> str:
        """The text without any known value."""
        for form in self._forms():
            if form in text:
                self.counts[item, BY_VALUE] += text.count(form)
                text = text.replace(form, MASK)
        if self._short_pattern is not None:
            text, count = self._short_pattern.subn(MASK, text)
            self.counts[item, BY_VALUE] += count
        return text

    def finish_data(self, item: str, data: Any) -> Any:
        """The data without any known value, in keys too."""
        if isinstance(data, Mapping):
            return {self.finish_text(item, str(key)): self.finish_data(item, value) for key, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.finish_data(item, value) for value in data]
        if isinstance(data, str):
            return self.finish_text(item, data)
        if isinstance(data, int) and not isinstance(data, bool) and str(data) in self._values:
            self.counts[item, BY_VALUE] += 1
            return MASK
        return data

    def holds(self, text: str) -> bool:
        """Whether the text still has a known value: the last check before writing."""
        return any(form in text for form in self._forms()) or bool(
            self._short_pattern and self._short_pattern.search(text)
        )

    def report(self) -> list[str]:
        """How many values were removed where, by which rule; never which."""
        lines = [
            f"{item}: {count} × {rule}"
            for (item, rule), count in sorted(self.counts.items())
            if count and rule != ON_THE_SPARK
        ]
        masked = sum(count for (_, rule), count in self.counts.items() if rule == ON_THE_SPARK)
        lines.append(f"{masked} values had been masked on the Spark before anything was collected.")
        return lines

    # --- by structure

    def _redact_by_name(self, item: str, data: Any, name: str) -> Any:
        if name and data is not None and not isinstance(data, bool) and is_secret_name(name):
            return self._redact_all(item, data)
        if isinstance(data, Mapping):
            return {str(key): self._redact_by_name(item, value, str(key)) for key, value in data.items()}
        if isinstance(data, list | tuple):
            if data and all(isinstance(value, str) for value in data):
                return self._argv(item, data)
            return [self._redact_by_name(item, value, "") for value in data]
        return self._string(item, data) if isinstance(data, str) else data

    def _redact_all(self, item: str, data: Any) -> Any:
        """The data of a secret's name: everything below it is masked and remembered."""
        if isinstance(data, Mapping):
            return {str(key): self._redact_all(item, value) for key, value in data.items()}
        if isinstance(data, list | tuple):
            return [self._redact_all(item, value) for value in data]
        if data is None or isinstance(data, bool) or data == "":
            return data
        self.counts[item, BY_NAME] += 1
        self._remember(str(data))
        return MASK

    def _argv(self, item: str, words: Sequence[str]) -> list[str]:
        """A list of arguments, or of NAME=value entries (a secret variable's value may hold anything, blanks too)."""
        redacted = []
        for word, masked in zip(words, mask_argv(words), strict=True):
            entry = _NAMED_ENTRY.fullmatch(word)
            if entry is not None and is_secret_name(entry.group(1)) and entry.group(2):
                self.counts[item, BY_NAME] += 1
                self._remember(entry.group(2))
                redacted.append(f"{entry.group(1)}={MASK}")
            elif (
                masked.endswith(MASK)
                and word.startswith(masked[: -len(MASK)])
                and (word.startswith("-") or mask_text(word) != masked)  # a flag, or what a flag before it makes secret
            ):
                self.counts[item, BY_NAME] += 1
                self._remember(word[len(masked) - len(MASK) :])
                redacted.append(masked)
            else:
                redacted.append(self._string(item, word))
        return redacted

    def _string(self, item: str, text: str) -> str:
        """One string: a block of text, an argument, a NAME=value entry, or JSON."""
        if text[:1] in "{[" and text[-1:] in "}]":
            try:
                inner = json.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                walked = self._redact_by_name(item, inner, "")
                return text if walked == inner else json.dumps(walked, ensure_ascii=False)
        return self.learn_text(item, text)

    # --- by pattern

    def _key_block(self, match: re.Match[str]) -> str:
        self._remember(match.group())
        return MASK

    def _by_pattern(self, item: str, text: str) -> str:
        """Mask line by line: a flag at the end of one line says nothing of the time stamp that begins the next."""
        return "\n".join(self._line(item, line) for line in text.split("\n"))

    def _line(self, item: str, text: str) -> str:
        masked = mask_text(text)
        if masked != text:
            for value in _masked_values(text, masked):
                self.counts[item, BY_PATTERN] += 1
                if _is_distinctive(value):
                    self._remember(value)
        return masked

    # --- by value

    def _remember(self, value: str) -> None:
        unquoted = re.sub(r"^(?i:bearer|basic|token)\s+", "", value.strip().strip("\"'"))
        parts = [part for part in unquoted.split(":") if _is_distinctive(part)]  # of user:password
        for candidate in (value.strip(), unquoted, *parts):
            if (
                len(candidate) >= LEARNT_CHARS
                and candidate.lower() not in _COMMON.split()
                and len(self._values) < LEARNT_AT_MOST
            ):
                self._values.setdefault(candidate)
                self._sorted_forms = None

    def _forms(self) -> tuple[str, ...]:
        if self._sorted_forms is None:
            all_forms = {form for value in self._values for form in forms(value) if len(form) >= FORM_CHARS}
            all_forms = {form for form in all_forms if form not in MASK}
            self._sorted_forms = tuple(sorted(all_forms, key=lambda form: (-len(form), form)))
        return self._sorted_forms


def _masked_values(text: str, masked: str) -> Iterator[str]:
    """The values that the mask replaced."""
    text = text.replace(MASK, "")  # what was masked before reveals nothing
    pieces = masked.split(MASK)
    at = len(pieces[0])
    if not text.startswith(pieces[0]):
        return
    for index, piece in enumerate(pieces[1:], start=1):
        is_last = index == len(pieces) - 1
        end = len(text) - len(piece) if is_last else text.find(piece, at)
        if end < at:
            return
        if end > at:
            yield text[at:end]
        at = end + len(piece)


def _is_distinctive(value: str) -> bool:
    """Whether a value that followed a secret's name in a text is worth looking for elsewhere: a plain word is not."""
    bare = value.strip().strip("\"'[]")
    if _DATE.match(bare):
        return False
    return len(bare) >= 8 and (len(bare) >= 16 or (any(map(str.isdigit, bare)) and any(map(str.isalpha, bare))))
