"""Lints of Docker options and of who can reach the engine's API."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

from sparktop.checks.image import judge_tag
from sparktop.cmdline.engine_flags import SECRET_FLAGS
from sparktop.cmdline.source import Item
from sparktop.diagnose.lint.lint import (
    Edit,
    FindingBuilder,
    diff,
    lint,
    removed,
    replaced,
    with_flag,
    with_option,
    with_variables,
)
from sparktop.engines.images import Family, tag_of
from sparktop.engines.listening import ANYWHERE, is_loopback
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
def rm_with_restart(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    rm, restart = spec.option("rm"), policy(spec)
    if rm is None or restart is None or not restart.is_known or spec.kind is SourceKind.COMPOSE:
        return
    items = [rm, restart] if spec.line_of(rm) != spec.line_of(restart) else rm
    yield build(items, "both", edits=[removed(spec, restart)])


@lint("engine-flag-before-image")
def engine_flag_before_image(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    if not spec.misplaced:
        return
    figures = {
        "names": ", ".join(f"--{item.name}" for item in spec.misplaced[:4]),
        "several": len(spec.misplaced) > 1,
        "first": spec.misplaced[0].name,
        "moved": " ".join(f"--{item.name} {item.value or ''}".strip() for item in spec.misplaced),
    }
    yield build(spec.misplaced, "misplaced", figures, edits=[removed(spec, *spec.misplaced)])


@lint("server-started-twice")
def server_started_twice(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    item = spec.repeated
    if item is None:
        return
    is_server = item.spelled == "serve" or " " in item.spelled
    figures = {"typed": item.spelled, "first": item.spelled.split()[0], "server": is_server}
    yield build(item, "repeated", figures, edits=[removed(spec, item)] if is_server else [])


@lint("comment-cuts-command")
def comment_cuts_command(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    if not spec.cuts:
        return
    is_comment = all("#" in spec.document.line(spec.line_of(cut) or 1) for cut in spec.cuts)
    # Before a comment the line needs a backslash of its own, unless there is nothing else on it.
    is_joined = spec.kind is not SourceKind.SHELL
    edits = [(*cut.span, "" if is_joined or _is_alone(spec, cut) else "\\") for cut in spec.cuts if cut.span]
    yield build(
        spec.cuts,
        "comment" if is_comment else "blank",
        {"line": spec.line_of(spec.cuts[0]), "folded": is_joined},
        edits=[Edit(diff(spec.document, edits))],
    )


def _is_alone(spec: LaunchSpec, cut: Item) -> bool:
    return not spec.document.line(spec.line_of(cut) or 1).partition("#")[0].strip()


@lint("restarted-at-once")
def restarted_at_once(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    if spec.stopped is None or spec.engine is None:
        return
    yield build(spec.stopped, "stopped")


@lint("ports-without-effect")
def ports_without_effect(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    published, network = spec.options_of("publish"), spec.option("network")
    if not published or network is None or network.value != "host" or spec.kind is SourceKind.INSPECT:
        return
    is_wrong = any(len(set((item.value or "").split(":"))) > 1 for item in published if item.is_known)
    yield build(
        [network, *published],
        "on-the-hosts-network",
        severity=None if is_wrong else Severity.INFO,
        edits=[removed(spec, *published)],
    )


@lint("restart-on-failure", is_live=True)
def restart_on_failure(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    if spec.engine is not EngineKind.VLLM or at_least(spec, "0.24") is False or spec.is_ray_start:
        return
    for item in (spec.key("Restart", "Service"), spec.option("restart")):
        if item is None or (item.value or "").partition(":")[0] not in _ONLY_FAILURES:
            continue
        right = "always" if item in spec.unit else "unless-stopped"
        yield build(
            item,
            "only-failures",
            {"policy": item.value, "right": right, "unknown_version": not spec.version},
            severity=None if spec.version else Severity.INFO,
            edits=[replaced(spec, item, right)],
            subject=item.name,
        )


@lint("restart-before-proven")
def restart_before_proven(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    item = policy(spec)
    if item is None or item.value not in _POLICIES or spec.option("rm") or spec.kind is SourceKind.INSPECT:
        return
    yield build(item, "restarts", {"policy": item.value}, edits=[replaced(spec, item, _no_value(spec, item))])


def _no_value(spec: LaunchSpec, item: Item) -> str:
    """The value `no`, quoted where YAML would read a bare `no` as false."""
    before = spec.document.text[item.value_span[0] - 1] if item.value_span else ""
    return '"no"' if spec.kind is SourceKind.COMPOSE and before not in ("'", '"') else "no"


@lint("model-cache-mount")
def model_cache_mount(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    if not spec.shows_container or spec.elsewhere:
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
    yield build(None, "absent", edits=[with_option(spec, "mount", f"~/.cache/huggingface{target}")])


@lint("gpus-not-requested")
def gpus_not_requested(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    if not spec.shows_container or not spec.has_command or spec.is_exec:
        return
    if spec.kind in (SourceKind.DOCKERFILE, SourceKind.RUNNING):
        return
    if spec.option("gpus") or spec.option("privileged"):
        return
    runtime = spec.option("runtime")
    devices = [item.value or "" for item in spec.options_of("device")]
    if (runtime and "nvidia" in (runtime.value or "")) or any("nvidia" in device for device in devices):
        return
    if spec.kind is SourceKind.INSPECT and spec.variable("NVIDIA_VISIBLE_DEVICES"):
        return
    yield build(None, "absent", edits=[with_option(spec, "gpus", "all")])


@lint("ipc-or-shm")
def ipc_or_shm(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    if not spec.shows_container or spec.engine is None or spec.is_exec or spec.kind is SourceKind.DOCKERFILE:
        return
    if spec.option("ipc") or spec.option("shm-size"):
        return
    if any((item.value or "").endswith(":/dev/shm") for item in spec.options_of("mount")):
        return
    yield build(None, "default", edits=[with_option(spec, "ipc", "host")])


@lint("image-not-pinned")
def image_not_pinned(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    tag = tag_of(spec.image_name) if spec.image_name else None
    if spec.family in (None, Family.COMMUNITY) or not judge_tag(tag).is_problem:
        return
    yield build(spec.image, "moving", {"tag": tag})


@lint("secret-in-argv", is_live=True)
def secret_in_argv(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    for item in spec.flags:
        if item.name not in SECRET_FLAGS or item.value is None:
            continue
        variable, edit = SECRET_FLAGS[item.name], removed(spec, item)
        if item.name == "api-key" and spec.engine is not EngineKind.VLLM:
            variable = ""
        elif item.name == "api-key" and spec.kind is not SourceKind.RUNNING:
            edit += with_variables(spec, f"${{{variable}}}", variable)
        figures = {"flag": item.name, "variable": variable}
        yield build(item, "flag", figures, edits=[edit] if variable else [], subject=item.name)


@lint("api-without-key")
def api_without_key(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    if spec.engine is None or not spec.has_command or spec.is_ray_start or spec.flag("headless", "api-key"):
        return
    host = spec.flag("host")
    if spec.variable("VLLM_API_KEY") or (host is None and (spec.elsewhere or not spec.knows_environment)):
        return
    if _listens(spec, host) not in ANYWHERE:
        return
    if is_inside(spec) and not any(map(_is_for_all, spec.options_of("publish"))):
        return
    takes_key = spec.engine is EngineKind.VLLM
    yield build(
        host,
        "open",
        {"unknown_environment": not spec.knows_environment, "takes_key": takes_key},
        settles=spec.settles_missing,
        edits=[with_variables(spec, "${VLLM_API_KEY}", "VLLM_API_KEY")] if takes_key else [],
    )


def _listens(spec: LaunchSpec, host: Item | None) -> str:
    """The host where it listens, by its flag or else by default."""
    return (host.value if host else None) or (spec.engine.traits.host if spec.engine else "")


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
def recipe_default_literal(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    for item in spec.environment if spec.launcher is Launcher.SPARKRUN and spec.kind is SourceKind.RECIPE else ():
        if re.search(r"\$\{\w+:?[-+?=]", item.value or ""):
            yield build(
                item,
                "literal",
                {"name": item.name},  # its default may be a secret
                edits=[replaced(spec, item, f"${item.name}")],
                subject=item.name,
            )


@lint("loopback-in-container", is_live=True)
def loopback_in_container(spec: LaunchSpec, build: FindingBuilder) -> Iterable[Finding]:
    host = spec.flag("host")
    network = spec.option("network")
    if not is_loopback(_listens(spec, host)) or not is_inside(spec) or not spec.has_command or spec.elsewhere:
        return
    if not spec.options_of("publish") or (network and not network.is_known):
        return
    everywhere = str(_EVERY[0])
    edit = replaced(spec, host, everywhere) if host else with_flag(spec, "host", everywhere)
    yield build(host, "published", edits=[edit])
