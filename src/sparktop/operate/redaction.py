"""What leaves an archive: secrets by structure, by pattern, then by value wherever else they stand; counted, not told.

Two passes over all items together, because a value that an `inspect` gives away as HF_TOKEN may stand bare in a log
of the other node. First each item is masked by the names and patterns of the probe (one set of rules everywhere), and
what was taken out is remembered; then every remembered value, and every known one, is taken out of every item, in the
forms in which programs print it. Whatever can't be redacted is left out whole.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sparktop.operate.secretforms import forms
from sparktop.probe.remote import MASK, is_secret_name, mask_argv, mask_text

LEARNT_CHARS = 6
"""A shorter value is taken out where it stands, and is not looked for elsewhere: it would be found in any text."""
FORM_CHARS = 5
"""What base64 leaves of the shortest, wherever in the encoded text it begins."""
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
_HINT = re.compile(
    r"token(?!s\b|iz)|secret|pass|pwd|key|credential|cookie|bearer|basic|auth"
    r"|hf_|nvapi-|gh[pousr]_|github_pat|akia|xox|sk-|eyj|://[^/\s]*@",
    re.IGNORECASE,
)
"""Whatever the probe's rules could find in a text has one of these in it; a test holds them together."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_NAMED_ENTRY = re.compile(r"([A-Za-z_][\w.-]{0,120})=(.*)", re.DOTALL)


class Redactor:
    """Redacts the items of one archive; `learn` on all of them first, then `finish` on each."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """`secrets`: exact values that are known beforehand, whatever their length."""
        self._values: dict[str, None] = {}
        self._short: dict[str, None] = {}
        self._ready: tuple[str, ...] | None = None
        self._words: re.Pattern[str] | None = None
        self.counts: Counter[tuple[str, str]] = Counter()
        """(item, rule) to how many."""
        for secret in secrets:
            if len(secret.strip()) >= LEARNT_CHARS:
                self._values[secret] = None
            elif secret.strip():
                self._short[secret] = None
        if self._short:
            words = "|".join(re.escape(value) for value in sorted(self._short, key=len, reverse=True))
            self._words = re.compile(rf"(?<!\w)(?:{words})(?!\w)")

    def __repr__(self) -> str:
        return f"Redactor({len(self._values) + len(self._short)} values)"

    # --- first pass

    def learn_text(self, item: str, text: str) -> str:
        """Text without what its names and patterns give away; the values are remembered."""
        self.counts[item, ON_THE_SPARK] += text.count(MASK)
        text, keys = _KEY_BLOCK.subn(self._key_block, text)
        self.counts[item, BY_KEY_BLOCK] += keys
        text, serials = _SERIAL.subn(lambda found: found.group(1) + MASK, text)
        self.counts[item, BY_SERIAL] += serials
        return self._by_pattern(item, text)

    def learn_data(self, item: str, data: Any) -> Any:
        """JSON-ready data without what the names of its keys, its variables and its flags give away."""
        return self._walk(item, data, "")

    # --- second pass

    def finish_text(self, item: str, text: str) -> str:
        """Text without any value that is known by now."""
        for form in self._forms():
            if form in text:
                self.counts[item, BY_VALUE] += text.count(form)
                text = text.replace(form, MASK)
        if self._words is not None:
            text, count = self._words.subn(MASK, text)
            self.counts[item, BY_VALUE] += count
        return text

    def finish_data(self, item: str, data: Any) -> Any:
        """Data without any value that is known by now, in keys too."""
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
        """Whether a known value still stands in it: the last look before it is written."""
        return any(form in text for form in self._forms()) or bool(self._words and self._words.search(text))

    def report(self) -> list[str]:
        """What was removed where by which rule; never what."""
        lines = [
            f"{item}: {count} × {rule}"
            for (item, rule), count in sorted(self.counts.items())
            if count and rule != ON_THE_SPARK
        ]
        masked = sum(count for (_, rule), count in self.counts.items() if rule == ON_THE_SPARK)
        lines.append(f"{masked} values had been masked on the Spark before anything was collected.")
        return lines

    # --- by structure

    def _walk(self, item: str, data: Any, name: str) -> Any:
        if name and data is not None and not isinstance(data, bool) and is_secret_name(name):
            return self._removed(item, data)
        if isinstance(data, Mapping):
            return {str(key): self._walk(item, value, str(key)) for key, value in data.items()}
        if isinstance(data, list | tuple):
            if data and all(isinstance(value, str) for value in data):
                return self._argv(item, data)
            return [self._walk(item, value, "") for value in data]
        return self._string(item, data) if isinstance(data, str) else data

    def _removed(self, item: str, data: Any) -> Any:
        """Everything beneath a secret's name is one."""
        if isinstance(data, Mapping):
            return {str(key): self._removed(item, value) for key, value in data.items()}
        if isinstance(data, list | tuple):
            return [self._removed(item, value) for value in data]
        if data is None or isinstance(data, bool) or data == "":
            return data
        self.counts[item, BY_NAME] += 1
        self._remember(str(data))
        return MASK

    def _argv(self, item: str, words: Sequence[str]) -> list[str]:
        """A list of arguments, or of NAME=value entries: a secret variable's value may hold anything, blanks too."""
        found = []
        for word, masked in zip(words, mask_argv(words), strict=True):
            entry = _NAMED_ENTRY.fullmatch(word)
            if entry is not None and is_secret_name(entry.group(1)) and entry.group(2):
                self.counts[item, BY_NAME] += 1
                self._remember(entry.group(2))
                found.append(f"{entry.group(1)}={MASK}")
            elif masked == MASK != word:
                self.counts[item, BY_NAME] += 1
                self._remember(word)
                found.append(MASK)
            elif masked.endswith(f"={MASK}") and word.startswith(masked[: -len(MASK)]) and word.startswith("-"):
                self.counts[item, BY_NAME] += 1
                self._remember(word[len(masked) - len(MASK) :])
                found.append(masked)
            else:
                found.append(self._string(item, word))
        return found

    def _string(self, item: str, text: str) -> str:
        """One string: a block of text, an argument, an entry NAME=value."""
        if text[:1] in "{[" and text[-1:] in "}]":
            try:
                inner = json.loads(text)
            except (ValueError, RecursionError):
                pass
            else:
                walked = self._walk(item, inner, "")
                return text if walked == inner else json.dumps(walked, ensure_ascii=False)
        return self.learn_text(item, text)

    # --- by pattern

    def _key_block(self, found: re.Match[str]) -> str:
        self._remember(found.group())
        return MASK

    def _by_pattern(self, item: str, text: str) -> str:
        """Line by line: a flag at the end of one line says nothing of the time stamp that begins the next."""
        if not _HINT.search(text):
            return text
        return "\n".join(self._line(item, line) if _HINT.search(line) else line for line in text.split("\n"))

    def _line(self, item: str, text: str) -> str:
        masked = mask_text(text)
        if masked != text:
            for value in _taken_out(text, masked):
                self.counts[item, BY_PATTERN] += 1
                if _is_telling(value):
                    self._remember(value)
        return masked

    # --- by value

    def _remember(self, value: str) -> None:
        bare = re.sub(r"^(?i:bearer|basic|token)\s+", "", value.strip().strip("\"'"))
        parts = [part for part in bare.split(":") if _is_telling(part)]  # of user:password
        for one in (value.strip(), bare, *parts):
            if len(one) >= LEARNT_CHARS and one.lower() not in _COMMON.split() and len(self._values) < LEARNT_AT_MOST:
                self._values.setdefault(one)
                self._ready = None

    def _forms(self) -> tuple[str, ...]:
        if self._ready is None:
            every = {form for value in self._values for form in forms(value) if len(form) >= FORM_CHARS}
            every = {form for form in every if form not in MASK}
            self._ready = tuple(sorted(every, key=lambda form: (-len(form), form)))
        return self._ready


def _taken_out(text: str, masked: str) -> Iterator[str]:
    """What stood where the mask stands now."""
    text = text.replace(MASK, "")  # what was masked before has nothing to give away
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


def _is_telling(value: str) -> bool:
    """Whether a value that stood after a secret's name in a text is one to look for elsewhere: a word is not."""
    bare = value.strip().strip("\"'[]")
    if _DATE.match(bare):
        return False
    return len(bare) >= 8 and (len(bare) >= 16 or (any(map(str.isdigit, bare)) and any(map(str.isalpha, bare))))
