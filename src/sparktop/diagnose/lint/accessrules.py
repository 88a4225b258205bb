"""Lints of who reaches an engine: secrets on command lines, APIs without a key, addresses nobody reaches."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.diagnose.lint.changes import removed, replaced, with_flag, with_variable
from sparktop.diagnose.lint.lintrule import Lint, card, change, claim
from sparktop.diagnose.lint.spec import LaunchSpec, SourceKind
from sparktop.diagnose.rule import Rule
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy

_SECRET = card(
    "secret-in-argv",
    Severity.WARNING,
    "A secret stands on the command line, where every user of the machine can read it",
    "every engine",
    "field report 001",
)
_OPEN_API = card(
    "api-without-key",
    Severity.INFO,
    "The API listens on every network and asks for no key",
    "every engine",
    "field report 001",
)
_LOOPBACK = card(
    "loopback-in-container",
    Severity.WARNING,
    "The API listens on the container's own loopback, which no published port reaches",
    "SGLang (default 127.0.0.1) in a container with a network of its own",
    "SGLang 0.5.12, server_args.py",
)


def _secret(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    for item in spec.flags:
        if item.name not in ("api-key", "admin-api-key", "hf-token", "ssl-keyfile-password") or item.value is None:
            continue
        remedies = []
        if spec.engine is EngineKind.VLLM and item.name == "api-key":
            lines = () if spec.kind is SourceKind.RUNNING else with_variable(spec, "VLLM_API_KEY", "${VLLM_API_KEY}")
            remedies = [change("give it in the environment: VLLM_API_KEY", *removed(spec, item), *lines)]
        elif item.name == "hf-token":
            remedies = [change("give it in the environment: HF_TOKEN", *removed(spec, item))]
        else:
            remedies = [Remedy(title="listen on 127.0.0.1 and let a reverse proxy ask for the key")]
        yield claim(
            spec,
            rule,
            item,
            title=f"--{item.name} puts a secret on the command line, where every user of the machine can read it",
            explanation=(
                "`ps`, /proc and `docker inspect` show command lines, and they end in histories and in logs; a shell's "
                "variable is filled in before that. The engine reads the same from its environment."
            ),
            remedies=remedies,
            subject=item.name,
        )


def _open_api(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    if spec.engine is None or not spec.has_command or spec.is_open or spec.is_ray_start or spec.flag("headless"):
        return
    if (
        spec.flag("api-key", "config")
        or spec.variable("VLLM_API_KEY")
        or not (spec.knows_environment or spec.flag("host"))
    ):
        return
    host = spec.flag("host")
    listens = (host.value if host else None) or ("127.0.0.1" if spec.engine is EngineKind.SGLANG else "0.0.0.0")  # noqa: S104
    if listens not in ("0.0.0.0", "::"):  # noqa: S104
        return
    network = spec.option("network")
    published = [item.value or "" for item in spec.options_of("publish")]
    is_inside = spec.has_container and not (network and network.value == "host")
    if is_inside and all(each.startswith(("127.", "[::1]", "localhost")) for each in published):
        return
    yield claim(
        spec,
        rule,
        host,
        explanation=(
            "Whoever reaches this machine's port can use the model, and its unauthenticated endpoints. On a network of "
            "your own that may be meant; a key costs nothing."
        ),
        settles="" if spec.knows_environment else "whether VLLM_API_KEY is set where it runs",
        remedies=[
            change("ask for a key", *with_variable(spec, "VLLM_API_KEY", "${VLLM_API_KEY}"))
            if spec.engine is EngineKind.VLLM
            else Remedy(title="listen on 127.0.0.1 and let a reverse proxy ask for the key")
        ],
    )


def _loopback(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    host = spec.flag("host")
    address = host.value if host else "127.0.0.1" if spec.engine is EngineKind.SGLANG else None
    network = spec.option("network")
    if address not in ("127.0.0.1", "localhost") or not spec.has_container or not spec.has_command or spec.is_open:
        return
    if not spec.options_of("publish") or (network and (network.value == "host" or not network.is_known)):
        return
    yield claim(
        spec,
        rule,
        host,
        explanation=(
            "The container has a network of its own, and 127.0.0.1 there is not the machine's: a published port leads "
            "to an interface nobody listens on. SGLang's default is 127.0.0.1."
        ),
        remedies=[
            change(
                "listen on all of the container's interfaces, and publish to the address that is meant",
                *(replaced(spec, host, "0.0.0.0") if host else with_flag(spec, "host", "0.0.0.0")),  # noqa: S104
            )
        ],
    )


LINTS = (
    Lint(card=_SECRET, check=_secret, is_live=True),
    Lint(card=_LOOPBACK, check=_loopback, is_live=True),
    Lint(card=_OPEN_API, check=_open_api),
)
