"""Which names and texts are secrets, and both masked.

Standard library only, for Python 3.10: it travels to the Spark with the probe and the runner.
"""

from __future__ import annotations

import functools
import re

TYPE_CHECKING = False  # typing itself would cost memory on the Spark
if TYPE_CHECKING:
    from collections.abc import Iterable

MASK = "<masked>"
_SECRET_WORDS = frozenset(
    {"token", "secret", "secrets", "password", "passwd", "passphrase", "pass", "pwd", "apikey", "credential"}
    | {"credentials", "cookie", "bearer", "auth", "authorization", "accesskey", "privatekey"}
)
_SECRET_PAIRS = (
    ["api", "key"],
    ["api", "keys"],
    ["access", "key"],
    ["private", "key"],
    ["secret", "key"],
    ["auth", "key"],
)
_PATTERNS = tuple(
    (needles.split(), re.compile(pattern), replacement)
    for needles, pattern, replacement in (
        (
            "hf_ nvapi- gh akia xox",
            r"\b(?:hf_[A-Za-z0-9]{16,}|nvapi-[\w-]{12,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|AKIA[0-9A-Z]{12,}|xox[abpr]-[\w-]{8,})",
            MASK,
        ),
        ("sk-", r"(?<![A-Za-z0-9])sk-[\w-]{12,}", MASK),
        ("eyj", r"\beyJ[\w-]{6,}\.[\w-]+(?:\.[\w-]*)?", MASK),
        # "Basic information" is prose: base64 has capitals or digits.
        (
            "bearer basic",
            r"(?i)\b(bearer|basic(?=\s+(?-i:[\w.~+/=-]*[A-Z0-9])))\s+[\w.~+/=-]{6,}",
            r"\1 " + MASK,
        ),
        ("://", r"://[^/\s@]+@", "://" + MASK + "@"),
    )
)
"""What a text in lower case must have a piece of, what is masked then, and by what."""
# Every piece is linear in the length of the text: whoever may start a process may name it to slow a scanner down.
_NAMED = [word for word in {*_SECRET_WORDS, "key"} if not any(one in word for one in {*_SECRET_WORDS, "key"} - {word})]
"""Whatever names a secret has one of these in it."""
_NAMING = re.compile("|".join(_NAMED), re.IGNORECASE)
_WORD_CHARS = re.compile(r"[\w.-]*")
_COUNT = re.compile(r"\d{1,9}(?![\w.~+/=-])")
"""What SGLang writes after `#new-token:`."""
_UNSET = re.compile(r"(?:None|null|True|False|\.{3})(?![\w.~+/=-])")
"""What an engine that tells its arguments writes after `hf_token=`, and a remedy in place of what is to be typed."""
_SHELL_VARIABLE = re.compile(
    r"(?:(?:[Bb]earer|[Tt]oken)\s{1,8})?\$\{?[A-Z][A-Z0-9_]{0,40}(?:KEY|TOKEN|SECRET|PASSWORD)\}?(?![\w.~+/=-])"
)
"""A shell's variable in place of a secret: `Authorization: Bearer $VLLM_API_KEY` can be pasted, and tells nothing."""
_ASSIGNS = re.compile(r"""[\\"'\]]{0,4}\s{0,8}[=:]\s{0,8}""")
_SPACE = re.compile(r"\s{1,8}")
_VALUE = re.compile(
    r"""\[[^\]]*|\\["'][^"'\\]*|"(?:[^"\\]|\\.)*|'(?:[^'\\]|\\.)*|(?:(?:bearer|basic|token)\s{1,8})?[^\s"',;}&]*""",
    re.IGNORECASE | re.DOTALL,
)


@functools.lru_cache(maxsize=512)
def is_secret_name(name: str) -> bool:
    """Whether a flag, variable or JSON key names a secret: `--hf-token` does, `--max-tokens` and `--tokenizer` not."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().replace("-", "_").replace(".", "_").split("_")
    words = [word for word in words if word]
    if words[-1:] in (["id"], ["ids"], ["file"], ["path"]):
        return False
    return any(word in _SECRET_WORDS for word in words) or any(
        words[index : index + 2] in _SECRET_PAIRS for index in range(len(words) - 1)
    )


def mask_text(text: str) -> str:
    """One argument with secrets masked: by pattern, and by name inside KEY=VALUE, JSON and whole command lines.

    An engine's log brings thousands of lines a second: what has no piece of a secret costs next to nothing.
    """
    lower = text.lower()
    for needles, pattern, replacement in _PATTERNS:
        if any(needle in lower for needle in needles):
            text = pattern.sub(replacement, text)
    if not any(word in lower for word in _NAMED):
        return text
    masked, done, at = "", 0, 0
    while found := _NAMING.search(text, at):
        start = found.start()
        while start > at and _is_of_word(text[start - 1]):
            start -= 1
        at = _WORD_CHARS.match(text, found.end()).end()  # type: ignore[union-attr]
        name = text[start:at][-100:]
        if is_secret_name(name):
            gap = _ASSIGNS.match(text, at) or (_SPACE.match(text, at) if name.startswith("--") else None)
            value = _VALUE.match(text, gap.end()) if gap else None
            is_count = value and name.endswith("token") and _COUNT.match(text, value.start())
            is_told = value and (_UNSET.match(text, value.start()) or _SHELL_VARIABLE.match(text, value.start()))
            if value and value.group() and not is_count and not is_told:
                opening = value.group().lstrip("\\")[:1]
                masked += text[done : value.start()] + (opening if opening in "\"'[" else "") + MASK
                done = at = value.end()
    return masked + text[done:]


def _is_of_word(char: str) -> bool:
    return char.isalnum() or char in "_.-"


def mask_argv(argv: Iterable[str]) -> list[str]:
    """An argv with secrets masked; what follows a secret flag is masked too (all of it for `--api-key a b`)."""
    masked: list[str] = []
    hide = 0  # arguments still to be hidden
    for argument in argv:
        if argument.startswith("-"):
            name, equals, _ = argument.partition("=")
            secret = is_secret_name(name)
            if secret and equals:
                argument = f"{name}={MASK}"
            elif secret:
                hide = 1000 if name.replace("_", "-").endswith("api-key") else 1
                masked.append(argument)
                continue
            elif hide == 1:  # a value that begins with a dash is a value all the same
                argument = MASK if not argument.startswith("--") else mask_text(argument)
            else:
                argument = mask_text(argument)
            hide = 0
        elif hide:
            hide -= 1
            argument = MASK
        else:
            argument = mask_text(argument)
        masked.append(argument)
    return masked


def is_secret(name: str, value: str) -> bool:
    """Whether a variable, label or option of this name and value is not to be shown."""
    is_named = is_secret_name(name) or name.upper().endswith(("KEY", "KEYS"))
    return bool(value) and (is_named or mask_text(value) != value)
