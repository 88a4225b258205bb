"""Lints of containers: options that Docker refuses, that do nothing, or that leave the engine alone (engines.md 1D)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparktop.diagnose.lint.changes import removed, replaced, with_option
from sparktop.diagnose.lint.images import tag_of
from sparktop.diagnose.lint.lintrule import Lint, card, change, claim
from sparktop.diagnose.lint.spec import Family, Item, Launcher, LaunchSpec, SourceKind
from sparktop.diagnose.rule import Rule
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy

_RM_RESTART = card(
    "rm-with-restart",
    Severity.CRITICAL,
    "--rm and --restart exclude one another: Docker refuses to start the container",
    "docker run, all versions",
    "docker/cli, container/opts.go",
    "field report 004",
)
_BEFORE_IMAGE = card(
    "engine-flag-before-image",
    Severity.CRITICAL,
    "An engine's flag stands before the image's name, where Docker takes it for its own",
    "docker run, all versions",
    "Docker documentation, docker run",
    "field report 004",
)
_UNATTENDED = card(
    "restart-before-proven",
    Severity.INFO,
    "A restart policy before the engine has served once",
    "containers of engines on GB10",
    "field report 001",
    "field report 004",
)
_CACHE = card(
    "model-cache-mount",
    Severity.INFO,
    "The model is downloaded again with every new container",
    "containers that serve a model of the Hugging Face hub",
    "field report 001",
)
_GPUS = card(
    "gpus-not-requested",
    Severity.CRITICAL,
    "The container asks for no GPU",
    "Docker where `nvidia` is not the default runtime",
    "Docker documentation, GPU access",
)
_SHM = card(
    "ipc-or-shm",
    Severity.INFO,
    "Shared memory (/dev/shm) has Docker's 64 MB",
    "containers of vLLM and SGLang",
    "vLLM documentation, using Docker",
)
_LATEST = card(
    "image-not-pinned",
    Severity.INFO,
    "The image's tag moves: tomorrow's version may ignore today's flags and variables",
    "every image of an engine",
    "vLLM 0.19.0 to 0.33.0, envs.py",
)
_POLICIES = ("always", "unless-stopped")


def policy(spec: LaunchSpec) -> Item | None:
    """The restart policy, where there is one that restarts."""
    item = spec.option("restart")
    return item if item and item.value not in (None, "", "no", "false") else None


def _rm_restart(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    rm, restart = spec.option("rm"), policy(spec)
    if rm is None or restart is None or not restart.is_known or spec.kind is SourceKind.COMPOSE:
        return
    yield claim(
        spec,
        rule,
        [rm, restart] if spec.line_of(rm) != spec.line_of(restart) else rm,
        explanation=(
            "Docker answers `conflicting options: cannot specify both --restart and --rm` and starts nothing. One "
            "removes the container when it ends, the other starts it again."
        ),
        remedies=[change("leave --restart out until the engine has served", *removed(spec, restart))],
    )


def _before_image(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    if not spec.misplaced:
        return
    names = ", ".join(f"--{item.name}" for item in spec.misplaced[:4])
    many = len(spec.misplaced) > 1
    moved = " ".join(f"--{item.name} {item.value or ''}".strip() for item in spec.misplaced)
    yield claim(
        spec,
        rule,
        spec.misplaced,
        title=f"{names} {'stand' if many else 'stands'} before the image's name, where Docker takes it for its own",
        explanation=(
            "Everything before the image's name is Docker's, everything after it the engine's. Docker ends with "
            f"`unknown flag: --{spec.misplaced[0].name}` and starts nothing."
        ),
        remedies=[change("put it after the image's name", *removed(spec, *spec.misplaced), f"+ IMAGE ... {moved}")],
    )


def _unattended(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    item = policy(spec)
    if item is None or item.value not in _POLICIES or spec.option("rm") or spec.kind is SourceKind.INSPECT:
        return
    yield claim(
        spec,
        rule,
        item,
        title=f"restart: {item.value} before the engine has served once",
        explanation=(
            "An engine that runs out of memory after minutes of loading is started again at once and for ever: Docker "
            "waits at most a minute, and not for memory. Set it once a first request has come back, and know that "
            "`docker stop` is what ends it."
        ),
        remedies=[change("no policy until it has served", *replaced(spec, item, _no(spec, item)))],
    )


def _no(spec: LaunchSpec, item: Item) -> str:
    """YAML takes a bare `no` for false."""
    before = spec.document.text[item.value_span[0] - 1] if item.value_span else ""
    return '"no"' if spec.kind is SourceKind.COMPOSE and before not in ("'", '"') else "no"


def _cache(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    if not spec.has_container or spec.launcher is not Launcher.DOCKER or spec.is_open:
        return
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", spec.model_name) or spec.kind is SourceKind.DOCKERFILE:
        return
    target = ":/root/.cache/huggingface"
    mounts = [item.value or "" for item in spec.options_of("mount")]
    homes = [item.value or "" for name in ("HF_HOME", "HF_HUB_CACHE") if (item := spec.variable(name))]
    if any("huggingface" in each or "/root/.cache" in each or "$" in each for each in mounts):
        return
    if any(home and home in each for home in homes for each in mounts):
        return
    yield claim(
        spec,
        rule,
        None,
        title="No mount holds the model's files: they are downloaded again with every new container",
        explanation=(
            "The hub's cache is inside the container and goes with it. A bind of ~/.cache/huggingface keeps it, and a "
            "download beforehand keeps many gigabytes out of the start."
        ),
        remedies=[change("bind the cache", *with_option(spec, "mount", f"~/.cache/huggingface{target}"))],
    )


def _gpus(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    if not spec.has_container or spec.launcher is not Launcher.DOCKER or not spec.has_command:
        return
    if spec.kind in (SourceKind.DOCKERFILE, SourceKind.RUNNING) or spec.is_exec:
        return
    if spec.option("gpus") or spec.option("privileged"):
        return
    runtime = spec.option("runtime")
    devices = [item.value or "" for item in spec.options_of("device")]
    if (runtime and "nvidia" in (runtime.value or "")) or any("nvidia" in device for device in devices):
        return
    if spec.kind is SourceKind.INSPECT and spec.variable("NVIDIA_VISIBLE_DEVICES"):
        return
    yield claim(
        spec,
        rule,
        None,
        explanation=(
            "Without --gpus all (`gpus: all`, or a device reservation) the engine finds no CUDA device and stops. Only "
            "where nvidia is Docker's default runtime does it get one all the same."
        ),
        severity=Severity.WARNING,
        settles="`docker info --format '{{.DefaultRuntime}}'`",
        remedies=[change("ask for the GPU", *with_option(spec, "gpus", "all"))],
    )


def _shm(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    if not spec.has_container or spec.launcher is not Launcher.DOCKER or spec.engine is None:
        return
    if spec.option("ipc") or spec.option("shm-size") or spec.kind is SourceKind.DOCKERFILE or spec.is_exec:
        return
    if any((item.value or "").endswith(":/dev/shm") for item in spec.options_of("mount")):
        return
    yield claim(
        spec,
        rule,
        None,
        explanation=(
            "The engine's processes pass tensors through /dev/shm. vLLM's and SGLang's own guides ask for --ipc=host, "
            "or a larger --shm-size; one process may get by without."
        ),
        remedies=[change("share the host's", *with_option(spec, "ipc", "host"))],
    )


def _latest(spec: LaunchSpec, rule: Rule) -> Iterable[Finding]:
    image = spec.image.value or "" if spec.image else ""
    tag = tag_of(image) if image else None
    if tag is None or spec.family in (None, Family.COMMUNITY) or not re.search(r"latest|nightly|^main$|^dev$", tag):
        return
    yield claim(
        spec,
        rule,
        spec.image,
        title=f"The tag {tag} moves: another version may ignore these flags and variables",
        explanation=(
            "vLLM and SGLang drop variables with a warning at most and rename flags between releases, so a tag that "
            "moves silently loses what protects this start. What depends on the version can't be checked here either."
        ),
        remedies=[Remedy(title="name the version that was tried, or the image's digest")],
    )


LINTS = (
    Lint(card=_BEFORE_IMAGE, check=_before_image),
    Lint(card=_RM_RESTART, check=_rm_restart),
    Lint(card=_GPUS, check=_gpus),
    Lint(card=_UNATTENDED, check=_unattended),
    Lint(card=_CACHE, check=_cache),
    Lint(card=_SHM, check=_shm),
    Lint(card=_LATEST, check=_latest),
)
