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
_SECRET_ENDINGS = (
    *("password", "passwd", "passphrase", "secret", "apikey", "accesskey", "authtoken", "accesstoken"),
    *("authorization", "cookie"),
)
"""Of words that are joined: PGPASSWORD, -HAuthorization."""
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
        ("://", r"://[^/\s\"']+@", "://" + MASK + "@"),
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


_LOGIN_FLAG = r"(?:(?<=\s)|(?<=[\"'])|^)(?:-[A-Za-z]{0,8}[uU]\s{0,8}|--(?:proxy-)?user(?:\s{1,8}|=))"
_LOGIN = re.compile(
    f"""({_LOGIN_FLAG}"[^":]{{0,100}}:)[^"]+|({_LOGIN_FLAG}'[^':]{{0,100}}:)[^']+|"""
    f"""({_LOGIN_FLAG}[^\\s:"']{{0,100}}:)(?!\\$\\{{?[A-Z])[^\\s"']+"""
)
"""What curl takes as NAME:PASSWORD; in other programs these flags take NAME, or UID:GID."""
_LOGIN_NEXT = re.compile(r"-[A-Za-z]{0,8}[uU]|--(?:proxy-)?user")
_HEADER = re.compile(r"(?:bearer|basic|token)\s{1,8}[^\s\"',;}&]+|[^\r\n]+", re.IGNORECASE)
"""A header's value holds blanks and commas: `Authorization: Digest username=..., response=...`."""
_QUOTED_HEADER = {'"': re.compile(r'[^"\r\n]+'), "'": re.compile(r"[^'\r\n]+")}
_PLAIN_TOKENS = frozenset({"token", "auth_token", "access_token", "api_token"})


@functools.lru_cache(maxsize=512)
def is_secret_name(name: str) -> bool:
    """Whether a flag, variable or JSON key names a secret: `--hf-token` does, `--max-tokens` and `--tokenizer` not."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().replace("-", "_").replace(".", "_").split("_")
    words = [word for word in words if word]
    if words[-1:] in (["id"], ["ids"], ["file"], ["path"]):
        return False
    if words[:1] in (["x"], ["ocp"]) and words[-1] == "key":
        return True  # a header: X-Functions-Key
    if words == ["nopasswd"]:
        return False  # sudoers: what follows is a command
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS) for word in words) or any(
        words[index : index + 2] in _SECRET_PAIRS for index in range(len(words) - 1)
    )


def mask_text(text: str) -> str:
    """One argument with secrets masked: by pattern, and by name inside KEY=VALUE, JSON and whole command lines.

    An engine's log brings thousands of lines a second: what has no piece of a secret costs next to nothing.
    """
    lower = text.lower()
    curl = lower.find("curl")
    if curl >= 0:
        text = text[:curl] + _without_login(text[curl:])
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
            value = _value_of(text, start, at, name)
            if value:
                opening = value.group().lstrip("\\")[:1]
                masked += text[done : value.start()] + (opening if opening in "\"'[" else "") + MASK
                done = at = value.end()
    return masked + text[done:]


def _value_of(text: str, start: int, end: int, name: str) -> re.Match[str] | None:
    """What stands at the name from `start` to `end`, if it is to be masked."""
    gap = _ASSIGNS.match(text, end) or (_SPACE.match(text, end) if name.startswith("--") else None)
    if gap is None:
        return None
    assigns = gap.group()
    is_quoted = '"' in assigns or "'" in assigns
    at = gap.end()
    if name.endswith("token") and _COUNT.match(text, at) and not (is_quoted and name in _PLAIN_TOKENS):
        return None
    if _UNSET.match(text, at) or _SHELL_VARIABLE.match(text, at):
        return None
    is_header = ":" in assigns and not is_quoted and name.lower().endswith(("authorization", "cookie"))
    if is_header and text[at : at + 1] not in ("", '"', "'", "\\", "["):
        value = _QUOTED_HEADER.get(text[start - 1 : start], _HEADER).match(text, at)
    else:
        value = _VALUE.match(text, at)
    return value if value and value.group() else None


def _without_login(text: str) -> str:
    return _LOGIN.sub(lambda match: (match[1] or match[2] or match[3]) + MASK, text)


def _is_of_word(char: str) -> bool:
    return char.isalnum() or char in "_.-"


def mask_argv(argv: Iterable[str]) -> list[str]:
    """An argv with secrets masked; what follows a secret flag is masked too (all of it for `--api-key a b`)."""
    masked: list[str] = []
    hide = 0  # arguments still to be hidden
    is_curl = is_login = False
    for argument in argv:
        if is_login and ":" in argument:
            masked.append(argument.partition(":")[0] + ":" + MASK)
            is_login = False
            continue
        is_login = is_curl and bool(_LOGIN_NEXT.fullmatch(argument))
        if is_curl and argument.startswith("-"):
            argument = _without_login(argument)
        is_curl = is_curl or argument.rpartition("/")[2] == "curl"
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
