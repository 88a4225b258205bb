"""Lints of Docker options and of who can reach the engine's API."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

from sparktop.checks.image import judge_tag
from sparktop.cmdline.source import Item
from sparktop.diagnose.lint.lint import (
    Claim,
    Edit,
    diff,
    lint,
    removed,
    replaced,
    with_flag,
    with_option,
    with_variable,
)
from sparktop.engines.images import Family, tag_of
from sparktop.launchspec.spec import Launcher, LaunchSpec, SourceKind, at_least
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding

_POLICIES = ("always", "unless-stopped")
_ONLY_FAILURES = ("on-failure", "on-abnormal", "on-abort", "on-watchdog")
"""Docker's and systemd's policies that leave down what exits with 0."""
_EVERY = (ip_address("0.0.0.0"), ip_address("::"))  # noqa: S104


def policy(spec: LaunchSpec) -> Item | None:
    """The restart policy, unless it is "no"."""
    item = spec.option("restart")
    return item if item and item.value not in (None, "", "no", "false") else None


@lint("rm-with-restart")
def rm_with_restart(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    rm, restart = spec.option("rm"), policy(spec)
    if rm is None or restart is None or not restart.is_known or spec.kind is SourceKind.COMPOSE:
        return
    items = [rm, restart] if spec.line_of(rm) != spec.line_of(restart) else rm
    yield claim(items, "both", edits=[removed(spec, restart)])


@lint("engine-flag-before-image")
def engine_flag_before_image(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if not spec.misplaced:
        return
    figures = {
        "names": ", ".join(f"--{item.name}" for item in spec.misplaced[:4]),
        "several": len(spec.misplaced) > 1,
        "first": spec.misplaced[0].name,
        "moved": " ".join(f"--{item.name} {item.value or ''}".strip() for item in spec.misplaced),
    }
    yield claim(spec.misplaced, "misplaced", figures, edits=[removed(spec, *spec.misplaced)])


@lint("server-started-twice")
def server_started_twice(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.repeated
    if item is None:
        return
    is_server = item.spelled == "serve" or " " in item.spelled
    figures = {"typed": item.spelled, "first": item.spelled.split()[0], "server": is_server}
    yield claim(item, "repeated", figures, edits=[removed(spec, item)] if is_server else [])


@lint("comment-cuts-command")
def comment_cuts_command(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if not spec.cuts:
        return
    is_comment = all("#" in spec.document.line(spec.line_of(cut) or 1) for cut in spec.cuts)
    # Before a comment the line needs a backslash of its own, unless there is nothing else on it.
    is_joined = spec.kind is not SourceKind.SHELL
    edits = [(*cut.span, "" if is_joined or _is_alone(spec, cut) else "\\") for cut in spec.cuts if cut.span]
    yield claim(
        spec.cuts,
        "comment" if is_comment else "blank",
        {"line": spec.line_of(spec.cuts[0]), "folded": is_joined},
        edits=[Edit(lines=diff(spec.document, edits))],
    )


def _is_alone(spec: LaunchSpec, cut: Item) -> bool:
    return not spec.document.line(spec.line_of(cut) or 1).partition("#")[0].strip()


@lint("restarted-at-once")
def restarted_at_once(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if spec.stopped is None or spec.engine is None:
        return
    yield claim(spec.stopped, "stopped")


@lint("ports-without-effect")
def ports_without_effect(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    published, network = spec.options_of("publish"), spec.option("network")
    if not published or network is None or network.value != "host" or spec.kind is SourceKind.INSPECT:
        return
    is_wrong = any(len(set((item.value or "").split(":"))) > 1 for item in published if item.is_known)
    yield claim(
        [network, *published],
        "on-the-hosts-network",
        severity=None if is_wrong else Severity.INFO,
        edits=[removed(spec, *published)],
    )


@lint("restart-on-failure", is_live=True)
def restart_on_failure(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if spec.engine is not EngineKind.VLLM or at_least(spec, "0.24") is False or spec.is_ray_start:
        return
    for item in (spec.key("Restart", "Service"), spec.option("restart")):
        if item is None or (item.value or "").partition(":")[0] not in _ONLY_FAILURES:
            continue
        right = "always" if item in spec.unit else "unless-stopped"
        yield claim(
            item,
            "only-failures",
            {"policy": item.value, "right": right, "unknown_version": not spec.version},
            severity=None if spec.version else Severity.INFO,
            edits=[replaced(spec, item, right)],
            subject=item.name,
        )


@lint("restart-before-proven")
def restart_before_proven(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = policy(spec)
    if item is None or item.value not in _POLICIES or spec.option("rm") or spec.kind is SourceKind.INSPECT:
        return
    yield claim(item, "restarts", {"policy": item.value}, edits=[replaced(spec, item, _no_value(spec, item))])


def _no_value(spec: LaunchSpec, item: Item) -> str:
    """The value `no`, quoted where YAML would read a bare `no` as false."""
    before = spec.document.text[item.value_span[0] - 1] if item.value_span else ""
    return '"no"' if spec.kind is SourceKind.COMPOSE and before not in ("'", '"') else "no"


@lint("model-cache-mount")
def model_cache_mount(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if not spec.has_container or spec.launcher is not Launcher.DOCKER or spec.elsewhere or spec.has_open_options:
        return
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", spec.model_name) or spec.kind is SourceKind.DOCKERFILE:
        return
    target = ":/root/.cache/huggingface"
    mounts = [item.value or "" for item in spec.options_of("mount")]
    homes = [item.value or "" for name in ("HF_HOME", "HF_HUB_CACHE") if (item := spec.variable(name))]
    if any("huggingface" in mount or "/root/.cache" in mount or "$" in mount for mount in mounts):
        return
    if any(home and home in mount for home in homes for mount in mounts):
        return
    yield claim(None, "absent", edits=[with_option(spec, "mount", f"~/.cache/huggingface{target}")])


@lint("gpus-not-requested")
def gpus_not_requested(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if not spec.has_container or spec.launcher is not Launcher.DOCKER or not spec.has_command:
        return
    if spec.kind in (SourceKind.DOCKERFILE, SourceKind.RUNNING) or spec.is_exec or spec.has_open_options:
        return
    if spec.option("gpus") or spec.option("privileged"):
        return
    runtime = spec.option("runtime")
    devices = [item.value or "" for item in spec.options_of("device")]
    if (runtime and "nvidia" in (runtime.value or "")) or any("nvidia" in device for device in devices):
        return
    if spec.kind is SourceKind.INSPECT and spec.variable("NVIDIA_VISIBLE_DEVICES"):
        return
    yield claim(None, "absent", edits=[with_option(spec, "gpus", "all")])


@lint("ipc-or-shm")
def ipc_or_shm(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if not spec.has_container or spec.launcher is not Launcher.DOCKER or spec.engine is None:
        return
    if spec.option("ipc") or spec.option("shm-size") or spec.kind is SourceKind.DOCKERFILE or spec.is_exec:
        return
    if spec.has_open_options:
        return
    if any((item.value or "").endswith(":/dev/shm") for item in spec.options_of("mount")):
        return
    yield claim(None, "default", edits=[with_option(spec, "ipc", "host")])


@lint("image-not-pinned")
def image_not_pinned(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    image = spec.image.value or "" if spec.image else ""
    tag = tag_of(image) if image else None
    if spec.family in (None, Family.COMMUNITY) or not judge_tag(tag).is_problem:
        return
    yield claim(spec.image, "moving", {"tag": tag})


@lint("secret-in-argv", is_live=True)
def secret_in_argv(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    for item in spec.flags:
        if item.name not in ("api-key", "admin-api-key", "hf-token", "ssl-keyfile-password") or item.value is None:
            continue
        variable, edit = "", removed(spec, item)
        if spec.engine is EngineKind.VLLM and item.name == "api-key":
            variable = "VLLM_API_KEY"
            if spec.kind is not SourceKind.RUNNING:
                edit += with_variable(spec, variable, "${VLLM_API_KEY}")
        elif item.name == "hf-token":
            variable = "HF_TOKEN"
        figures = {"flag": item.name, "variable": variable}
        yield claim(item, "flag", figures, edits=[edit] if variable else [], subject=item.name)


@lint("api-without-key")
def api_without_key(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if spec.engine is None or not spec.has_command or spec.is_ray_start or spec.flag("headless", "api-key"):
        return
    host = spec.flag("host")
    if spec.variable("VLLM_API_KEY") or (host is None and (spec.elsewhere or not spec.knows_environment)):
        return
    listen_address = (host.value if host else None) or spec.engine.traits.host or "0.0.0.0"  # noqa: S104
    if listen_address not in ("0.0.0.0", "::"):  # noqa: S104
        return
    if is_inside(spec) and not any(map(_is_for_all, spec.options_of("publish"))):
        return
    takes_key = spec.engine is EngineKind.VLLM
    yield claim(
        host,
        "open",
        {"unknown_environment": not spec.knows_environment, "takes_key": takes_key},
        settles=spec.settles_missing,
        edits=[with_variable(spec, "VLLM_API_KEY", "${VLLM_API_KEY}")] if takes_key else [],
    )


def is_inside(spec: LaunchSpec) -> bool:
    """Whether the container has a network of its own."""
    network = spec.option("network")
    return bool(spec.has_container) and not (network and network.value == "host")


def _is_for_all(published: Item) -> bool:
    """Whether a port is published on every address of the machine, or on one that the whole internet reaches."""
    value = re.sub(r"/\w+\Z|(?<=\$)\{[^}]*\}", "", published.value or "")
    address = re.fullmatch(r"\[?(.*?)\]?(?::[^:\]]*){2}", value)
    try:
        return not address or not address[1] or ip_address(address[1]) in _EVERY or ip_address(address[1]).is_global
    except ValueError:
        return False  # a name or a variable: one address


@lint("recipe-default-literal")
def recipe_default_literal(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    for item in spec.environment if spec.launcher is Launcher.SPARKRUN and spec.kind is SourceKind.RECIPE else ():
        if re.search(r"\$\{\w+:?[-+?=]", item.value or ""):
            yield claim(
                item,
                "literal",
                {"name": item.name},  # its default may be a secret
                edits=[replaced(spec, item, f"${item.name}")],
                subject=item.name,
            )


@lint("loopback-in-container", is_live=True)
def loopback_in_container(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    host = spec.flag("host")
    address = host.value if host else (spec.engine and spec.engine.traits.host) or None
    network = spec.option("network")
    if address not in ("127.0.0.1", "localhost") or not is_inside(spec) or not spec.has_command or spec.elsewhere:
        return
    if not spec.options_of("publish") or (network and not network.is_known):
        return
    everywhere = str(_EVERY[0])
    edit = replaced(spec, host, everywhere) if host else with_flag(spec, "host", everywhere)
    yield claim(host, "published", edits=[edit])
