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
    | {"credentials", "creds", "cookie", "bearer", "auth", "authorization", "accesskey", "privatekey", "authkey"}
    | {"requirepass", "masterauth", "storepass", "keypass"}
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
_ABBREVIATED = r"--(?:(?:admin[-_])?api[-_]ke?|admin[-_]a(?:pi?)?|hf[-_]t(?:o(?:ke?)?)?|ssl[-_]keyfile[-_]p[a-z]{0,7})"
"""The engines' secret flags, cut short as argparse takes them, where they still name only one."""
_PATTERNS = tuple(
    (needles.split(), re.compile(pattern), replacement)
    for needles, pattern, replacement in (
        (
            "hf_ nvapi- gh akia xox glpat- tskey- dckr_pat_ npm_ gsk_ hvs.",
            (
                r"\b(?:hf_[A-Za-z0-9]{16,}|nvapi-[\w-]{12,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|AKIA[0-9A-Z]{12,}"
                r"|xox[abpr]-[\w-]{8,}|glpat-[\w-]{12,}|tskey-[\w-]{12,}|dckr_pat_[\w-]{12,}|npm_\w{30,}|gsk_\w{30,}"
                r"|hvs\.[\w-]{20,})"
            ),
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
        ("--api --admin --hf --ssl", rf"(?i)({_ABBREVIATED}(?:=|\s{{1,8}}(?!--[a-z])))[^\s\"';|&]+", r"\1" + MASK),
        ("://", r"://[^/\s\"']+@", "://" + MASK + "@"),
        (
            "|",
            (
                r"""\b(echo|printf)((?:\s{1,8}-[neE]{1,3})?\s{1,8})(?:"(?!\$)[^"]{1,200}"|'[^']{1,200}'|[^\s|;&$]{1,200})"""
                r"(?=\s{0,8}\|[^|;&]{0,200}?(?:-stdin\b|--with-token\b|\bchpasswd\b|\bsudo\s{1,8}-[A-Za-z]{0,4}S))"
            ),
            r"\1\2" + MASK,
        ),
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
_SPACE = re.compile(r"\s{1,8}(?!--[a-z])")  # another flag is no value
_VALUE = re.compile(
    r"""\[[^\]]*|\\["'][^"'\\]*|"(?:[^"\\]|\\.)*|'(?:[^'\\]|\\.)*|(?:(?:bearer|basic|token)\s{1,8})?[^\s"',;}&]*""",
    re.IGNORECASE | re.DOTALL,
)


_JOINED = "VALUE"


class _CredentialFlag:
    """A flag that only its program makes a credential's: `-p` of sshpass, of `docker login`, not of `docker run`."""

    __slots__ = ("after", "flag", "is_joined", "secret")

    def __init__(self, flag: str, secret: str, after: str) -> None:
        self.is_joined = flag.endswith(_JOINED)
        """Whether its value is never the next word: `mysql -p DATABASE` asks for the password."""
        self.flag = re.compile(flag.removesuffix(_JOINED))
        self.secret = re.compile(secret, re.DOTALL)
        """What of the flag's value, behind the flag or in the next word, is masked."""
        self.after = after
        """The word that comes first."""


_ANY = ".+"
_CREDENTIAL_FLAGS = {
    program: _CredentialFlag(flag, secret, after)
    for programs, after, flag, secret in (
        ("sshpass", "", "-p", _ANY),
        ("ssh scp sftp rsync", "", r"(?!)", _ANY),  # -p of what sshpass starts is a port
        ("redis-cli valkey-cli keydb-cli", "", r"-a\Z", _ANY),
        ("mysql mysqldump mysqladmin mysqlimport mysqlcheck mysqlshow mysqlsh", "", "-pVALUE", _ANY),
        ("mariadb mariadb-dump mariadb-admin mariadb-import mariadb-check", "", "-pVALUE", _ANY),
        ("mongo mongosh mongodump mongorestore mongoexport mongoimport", "", "-p", _ANY),
        ("docker podman nerdctl buildah skopeo helm oras crane regctl az oc cf", "login", "-p", _ANY),
        ("ldapsearch ldapadd ldapmodify ldapdelete ldappasswd ldapwhoami", "", "-[xLvnZc]{0,8}w", _ANY),
        ("ipmitool sqlcmd bcp", "", "-P", _ANY),
        ("ssh-keygen", "", "-q?[NP]", _ANY),
        ("zip unzip", "", "-[a-zA-Z0-9]{0,8}P", _ANY),
        ("7z 7za 7zr 7zz", "", "-pVALUE", _ANY),
        ("snmpget snmpwalk snmpset snmpbulkwalk", "", r"-[AXc]\Z", _ANY),
        ("openssl", "", r"-[kK]\Z", _ANY),
        ("nmcli", "", r"(?:password|psk|(?:802-11-wireless-security|wifi-sec)\.psk)\Z", _ANY),
        ("ngrok", "", r"(?:add-)?authtoken\Z", r"\S{20,}"),
        ("wandb", "", r"login\Z", r"\w{40,}"),
        ("curl", "", "-[A-Za-z]{0,8}[uU]|--(?:proxy-)?user(?:=|\\Z)", "(?<=:).+"),
        ("http https xh xhs", "", r"-a", "(?<=:).+"),
        ("smbclient rpcclient smbget", "", "-U|--user(?:=|\\Z)", "(?<=%).+"),
        ("lftp", "", "-u", "(?<=,).+"),
    )
    for program in programs.split()
}
_FLAG_HINT = re.compile(r"(?:[\s\"']|^)-(?:[A-Za-z]|-user|-proxy-user)|nmcli|ngrok|wandb")
"""Whatever such a flag could match in a text has one of these."""
_FLAG_WORD = re.compile(r"[^\s\"',()`]+")
_QUOTES = ('"', "'")
_FLAG_GAP = re.compile(r"(?:\\?[\"'])?\s{0,8},?\s{0,8}")
_FLAG_VALUE = re.compile(r"""\\["'][^"'\\]*|(?:[^\s"'|;&]*[:%,])?(?:"(?:[^"\\]|\\.)*|'[^']*)|[^\s"'|;&]+""", re.DOTALL)
_TO_BE_TYPED = re.compile(r"\.{3}|\$\{?[A-Z_][A-Z0-9_]*\}?")
_HEADER = re.compile(r"(?:bearer|basic|token)\s{1,8}[^\s\"',;}&]+|[^\r\n]+", re.IGNORECASE)
"""A header's value holds blanks and commas: `Authorization: Digest username=..., response=...`."""
_QUOTED_HEADER = {'"': re.compile(r'[^"\r\n]+'), "'": re.compile(r"[^'\r\n]+")}
_PLAIN_TOKENS = frozenset({"token", "auth_token", "access_token", "api_token"})


@functools.lru_cache(maxsize=512)
def is_secret_name(name: str) -> bool:
    """Whether a flag, variable or JSON key names a secret: `--hf-token` does, `--max-tokens` and `--tokenizer` not."""
    if name.startswith("--") and re.fullmatch(_ABBREVIATED, name):
        return True
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().replace("-", "_").replace(".", "_").split("_")
    words = [word for word in words if word]
    if words[-1:] in (["id"], ["ids"], ["file"], ["path"]) or words[-2:] == ["per", "token"]:
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
    if _FLAG_HINT.search(text):
        text = _without_credential_flags(text)
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
    gap = _ASSIGNS.match(text, end) or (_SPACE.match(text, end) if name.startswith("-") else None)
    if gap is None:
        return None
    assigns = gap.group()
    if text.endswith("$", 0, start) and name == "PWD":
        return None  # `-v $PWD:/x`: the shell's folder
    if text.endswith("${", 0, start) and text.startswith(":-}", end):
        return None  # `${HF_TOKEN:-}`: nothing by default
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


class _CommandLine:
    """Reads a command line word by word for the flags of the programs it names."""

    __slots__ = ("_is_armed", "_program")

    def __init__(self) -> None:
        self._program: _CredentialFlag | None = None
        self._is_armed = False

    def flag(self, word: str) -> tuple[int, _CredentialFlag] | None:
        """The flag that `word` begins with, and where it ends."""
        program = _CREDENTIAL_FLAGS.get(word.rpartition("/")[2])
        if program is not None:
            self._program, self._is_armed = program, not program.after
        elif self._program is None:
            pass
        elif not self._is_armed:
            self._is_armed = word == self._program.after
        elif match := self._program.flag.match(word):
            return match.end(), self._program
        return None


def _without_credential_flags(text: str) -> str:
    """The text without what follows such a flag on the command lines in it: quoted for a shell, or a list's items."""
    command_line = _CommandLine()
    masked, done, at = "", 0, 0
    while word := _FLAG_WORD.search(text, at):
        at = word.end()
        flag = command_line.flag(word.group())
        if flag is None:
            continue
        start = word.start() + flag[0]
        if start == at and (text[at : at + 1] not in _QUOTES or text[at] == text[word.start() - 1 : word.start()]):
            if flag[1].is_joined:
                continue
            start = _FLAG_GAP.match(text, at).end()  # type: ignore[union-attr]
        value = _FLAG_VALUE.match(text, start)
        secret = value and flag[1].secret.search(text, start + _quote_chars(value.group()), value.end())
        if value and secret and not _TO_BE_TYPED.fullmatch(secret.group()):
            masked += text[done : secret.start()] + MASK
            done = at = value.end()
    return masked + text[done:]


def _quote_chars(value: str) -> int:
    return 2 if value.startswith("\\") else int(value[:1] in _QUOTES)


def _is_of_word(char: str) -> bool:
    return char.isalnum() or char in "_.-"


def mask_argv(argv: Iterable[str]) -> list[str]:
    """An argv with secrets masked; what follows a secret flag is masked too (all of it for `--api-key a b`)."""
    masked: list[str] = []
    hide = 0  # arguments still to be hidden
    command_line = _CommandLine()
    secret_of_next: re.Pattern[str] | None = None
    for argument in argv:
        flag = command_line.flag(argument)
        secret = secret_of_next.search(argument) if secret_of_next else None
        secret_of_next = None
        if flag and not secret:
            secret = flag[1].secret.search(argument, flag[0])
            secret_of_next = flag[1].secret if flag[0] == len(argument) and not flag[1].is_joined else None
        if secret:
            masked.append(argument[: secret.start()] + MASK)
            hide = 0
            continue
        if argument.startswith("-"):
            name, equals, _ = argument.partition("=")
            is_secret_flag = is_secret_name(name)
            if is_secret_flag and equals:
                argument = f"{name}={MASK}"
            elif is_secret_flag:
                hide = 1000 if "api-k" in name.replace("_", "-") else 1
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
