"""Lints of Docker options and of who can reach the engine's API."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

from sparktop.checks.image import judge_tag
from sparktop.cmdline.source import Item
from sparktop.diagnose.lint.lint import (
    Claim,
    change,
    diff,
    lint,
    removed,
    replaced,
    with_flag,
    with_option,
    with_variable,
)
from sparktop.diagnose.lint.spec import Launcher, LaunchSpec, SourceKind, at_least
from sparktop.engines.images import Family, tag_of
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding, Remedy

_POLICIES = ("always", "unless-stopped")
_ONLY_FAILURES = ("on-failure", "on-abnormal", "on-abort", "on-watchdog")
"""Docker's and systemd's policies that leave down what exits with 0."""
_EVERY = (ip_address("0.0.0.0"), ip_address("::"))  # noqa: S104


def policy(spec: LaunchSpec) -> Item | None:
    """The restart policy, unless it is "no"."""
    item = spec.option("restart")
    return item if item and item.value not in (None, "", "no", "false") else None


@lint(
    "rm-with-restart",
    Severity.CRITICAL,
    "--rm and --restart together: Docker refuses to start the container",
    "docker run, all versions",
    "docker/cli, container/opts.go",
    "field report 004",
)
def rm_with_restart(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    rm, restart = spec.option("rm"), policy(spec)
    if rm is None or restart is None or not restart.is_known or spec.kind is SourceKind.COMPOSE:
        return
    yield claim(
        [rm, restart] if spec.line_of(rm) != spec.line_of(restart) else rm,
        explanation=(
            "Docker answers `conflicting options: cannot specify both --restart and --rm` and starts nothing: --rm "
            "removes the container when it exits, --restart starts it again."
        ),
        remedies=[change("remove --restart until the engine has served", removed(spec, restart))],
    )


@lint(
    "engine-flag-before-image",
    Severity.CRITICAL,
    "An engine flag before the image name: Docker takes it for its own",
    "docker run, all versions",
    "Docker documentation, docker run",
    "field report 004",
)
def engine_flag_before_image(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if not spec.misplaced:
        return
    names = ", ".join(f"--{item.name}" for item in spec.misplaced[:4])
    many = len(spec.misplaced) > 1
    moved = " ".join(f"--{item.name} {item.value or ''}".strip() for item in spec.misplaced)
    yield claim(
        spec.misplaced,
        title=f"{names} before the image name: Docker takes {'them' if many else 'it'} for its own",
        explanation=(
            "Docker reads everything before the image name as its own options. It exits with `unknown flag: "
            f"--{spec.misplaced[0].name}` and starts nothing."
        ),
        remedies=[change("move it after the image name", removed(spec, *spec.misplaced), f"+ IMAGE ... {moved}")],
    )


@lint(
    "server-started-twice",
    Severity.CRITICAL,
    "The image starts the server itself: a command that starts it again becomes its arguments",
    "vllm/vllm-openai with its own entrypoint, and commands that name the server twice",
    "vLLM 0.32.0: `unrecognized arguments: serve MODEL`",
)
def server_started_twice(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = spec.repeated
    if item is None:
        return
    is_server = item.spelled == "serve" or " " in item.spelled
    first = item.spelled.split()[0]
    remedies = [change(f"remove `{item.spelled}`: the arguments begin with the model", removed(spec, item))]
    if not is_server:
        remedies = [Remedy(title=f"Set --entrypoint {first} before the image's name, and remove `{first}` after it")]
    yield claim(
        item,
        title=f"`{item.spelled}` becomes arguments of the server that already runs before it",
        explanation=(
            "The entrypoint of vllm/vllm-openai is `vllm serve`: what follows the image's name is its arguments. The "
            f"parser takes {first} for the model and exits with `unrecognized arguments`."
        ),
        remedies=remedies,
    )


@lint(
    "comment-cuts-command",
    Severity.CRITICAL,
    "A comment, or a blank behind a backslash, ends a continued command: the lines below don't belong to it",
    "shell scripts, and a shell's text in a compose file",
    "bash(1), COMMENTS and QUOTING",
)
def comment_cuts_command(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if not spec.cuts:
        return
    line = spec.line_of(spec.cuts[0])
    is_comment = all("#" in spec.document.line(spec.line_of(cut) or 1) for cut in spec.cuts)
    what, rule = "comment", "A backslash in a comment continues nothing"
    if not is_comment:
        what, rule = "blank behind the backslash", "A backslash continues a line only as its last character"
    elif spec.kind is not SourceKind.SHELL:
        rule = "YAML folds these lines into one, and a comment ends with its line"
    # Before a comment the line needs a backslash of its own, unless there is nothing else on it.
    is_joined = spec.kind is not SourceKind.SHELL
    edits = [(*cut.span, "" if is_joined or _is_alone(spec, cut) else "\\") for cut in spec.cuts if cut.span]
    yield claim(
        spec.cuts,
        title=f"The {what} in line {line} ends the command there",
        explanation=(
            f"{rule}: the shell runs what stands before it, and ignores the rest. The other findings are for the "
            "whole command."
        ),
        remedies=[change(f"take the {what.split()[0]} out of the command", *diff(spec.document, edits))],
    )


def _is_alone(spec: LaunchSpec, cut: Item) -> bool:
    return not spec.document.line(spec.line_of(cut) or 1).partition("#")[0].strip()


@lint(
    "restarted-at-once",
    Severity.WARNING,
    "A script stops the engine and starts it again before the memory of the last run is free",
    "scripts that start engines on GB10",
    "field report 004",
)
def restarted_at_once(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if spec.stopped is None or spec.engine is None:
        return
    yield claim(
        spec.stopped,
        explanation=(
            "On unified memory it can take over a minute until the memory of an engine that exited is free. An "
            "engine started before that runs out of memory (exit 137), or computes a smaller KV cache."
        ),
        settles="whether the engine that it stops still runs: `docker ps`",
        remedies=[
            Remedy(
                title="Wait for free memory before the start",
                steps=(
                    "until awk '/MemAvailable/ { exit !($2 > 100 * 1048576) }' /proc/meminfo; do sleep 2; done",
                    "# 100: the GiB that this engine takes",
                ),
            )
        ],
    )


@lint(
    "ports-without-effect",
    Severity.INFO,
    "Published ports do nothing on the host's network",
    "containers with network_mode: host",
    "Docker documentation, host network driver",
)
def ports_without_effect(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    published, network = spec.options_of("publish"), spec.option("network")
    if not published or network is None or network.value != "host" or spec.kind is SourceKind.INSPECT:
        return
    is_wrong = any(len(set((item.value or "").split(":"))) > 1 for item in published if item.is_known)
    yield claim(
        [network, *published],
        severity=Severity.WARNING if is_wrong else None,
        explanation=(
            "On the host's network the engine listens on the machine itself, on its own port and on every address "
            "that --host allows. Docker discards the published ports, and with them another port or address."
        ),
        remedies=[change("remove the ports, and set --host and --port", removed(spec, *published))],
    )


@lint(
    "restart-on-failure",
    Severity.WARNING,
    "A vLLM that dies stays down: it exits with 0, which on-failure takes for a success",
    "vLLM 0.24 and later, in containers and systemd units",
    "vLLM 0.32.0: exit code 0 after EngineCore was killed under load; Docker 20.10, on-failure:3",
    "systemd.service(5)",
    is_live=True,
)
def restart_on_failure(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if spec.engine is not EngineKind.VLLM or at_least(spec, "0.24") is False or spec.is_ray_start:
        return
    for item in (spec.key("Restart", "Service"), spec.option("restart")):
        if item is None or (item.value or "").partition(":")[0] not in _ONLY_FAILURES:
            continue
        right = "always" if item in spec.unit else "unless-stopped"
        yield claim(
            item,
            title=f"{item.value} leaves a vLLM that dies down: it exits with 0",
            severity=None if spec.version else Severity.INFO,
            explanation=(
                "When EngineCore dies, killed for memory for one, vLLM's API server shuts down in order and exits with "
                f"0. {item.value} restarts only after a failure. `{right}` restarts it; a stop by hand still stops it."
            ),
            settles="" if spec.version else "the version, in the log's first lines or by GET /version: from 0.24 on",
            remedies=[change(f"set {right}, once the engine has served", replaced(spec, item, right))],
            subject=item.name,
        )


@lint(
    "restart-before-proven",
    Severity.INFO,
    "A restart policy on an engine that hasn't served yet",
    "containers of engines on GB10",
    "field report 001",
    "field report 004",
)
def restart_before_proven(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    item = policy(spec)
    if item is None or item.value not in _POLICIES or spec.option("rm") or spec.kind is SourceKind.INSPECT:
        return
    yield claim(
        item,
        title=f"restart: {item.value} on an engine that hasn't served yet",
        explanation=(
            "If the engine runs out of memory while it loads, Docker starts it again, over and over, without waiting "
            "for memory; only `docker stop` breaks that loop. Set the policy once the engine has answered a first "
            "request."
        ),
        remedies=[change("set no policy until the engine has served", replaced(spec, item, _no_value(spec, item)))],
    )


def _no_value(spec: LaunchSpec, item: Item) -> str:
    """The value `no`, quoted where YAML would read a bare `no` as false."""
    before = spec.document.text[item.value_span[0] - 1] if item.value_span else ""
    return '"no"' if spec.kind is SourceKind.COMPOSE and before not in ("'", '"') else "no"


@lint(
    "model-cache-mount",
    Severity.INFO,
    "Every new container downloads the model again",
    "containers that serve a model of the Hugging Face hub",
    "field report 001",
)
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
    yield claim(
        None,
        title="No mount holds the model's files: every new container downloads them again",
        explanation=(
            "The Hugging Face cache is inside the container and is deleted with it. Mount ~/.cache/huggingface to "
            "keep it; download the model beforehand to start faster."
        ),
        remedies=[change("mount the cache", with_option(spec, "mount", f"~/.cache/huggingface{target}"))],
    )


@lint(
    "gpus-not-requested",
    Severity.CRITICAL,
    "The container requests no GPU",
    "Docker where `nvidia` is not the default runtime",
    "Docker documentation, GPU access",
)
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
    yield claim(
        None,
        explanation=(
            "Without --gpus all (`gpus: all`, or a device reservation) the engine finds no CUDA device and exits. It "
            "gets one only where nvidia is Docker's default runtime."
        ),
        severity=Severity.WARNING,
        settles="`docker info --format '{{.DefaultRuntime}}'`",
        remedies=[change("request the GPU", with_option(spec, "gpus", "all"))],
    )


@lint(
    "ipc-or-shm",
    Severity.INFO,
    "Shared memory (/dev/shm) is limited to Docker's 64 MB",
    "containers of vLLM and SGLang",
    "vLLM documentation, using Docker",
)
def ipc_or_shm(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if not spec.has_container or spec.launcher is not Launcher.DOCKER or spec.engine is None:
        return
    if spec.option("ipc") or spec.option("shm-size") or spec.kind is SourceKind.DOCKERFILE or spec.is_exec:
        return
    if spec.has_open_options:
        return
    if any((item.value or "").endswith(":/dev/shm") for item in spec.options_of("mount")):
        return
    yield claim(
        None,
        explanation=(
            "The engine's processes pass tensors through /dev/shm. The guides of vLLM and SGLang require --ipc=host "
            "or a larger --shm-size; an engine with one process may work without."
        ),
        remedies=[change("share the host's memory (--ipc=host)", with_option(spec, "ipc", "host"))],
    )


@lint(
    "image-not-pinned",
    Severity.INFO,
    "The image's tag is not fixed: a later version may ignore these flags and variables",
    "every image of an engine",
    "vLLM 0.19.0 to 0.33.0, envs.py",
)
def image_not_pinned(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    image = spec.image.value or "" if spec.image else ""
    tag = tag_of(image) if image else None
    if spec.family in (None, Family.COMMUNITY) or not judge_tag(tag).is_problem:
        return
    yield claim(
        spec.image,
        title=f"The tag {tag} is not fixed: a later version may ignore these flags and variables",
        explanation=(
            "vLLM and SGLang rename flags between releases and drop variables, with a warning at most. A later pull "
            "can silently disable what protects this start. sparktop can't check version-dependent settings here "
            "either."
        ),
        remedies=[Remedy(title="name the version you tested, or the image's digest")],
    )


@lint(
    "secret-in-argv",
    Severity.WARNING,
    "A secret on the command line: every user of the machine can read it",
    "every engine",
    "field report 001",
    is_live=True,
)
def secret_in_argv(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    for item in spec.flags:
        if item.name not in ("api-key", "admin-api-key", "hf-token", "ssl-keyfile-password") or item.value is None:
            continue
        remedies = []
        if spec.engine is EngineKind.VLLM and item.name == "api-key":
            variable = with_variable(spec, "VLLM_API_KEY", "${VLLM_API_KEY}")
            edits = (removed(spec, item), *(() if spec.kind is SourceKind.RUNNING else (variable,)))
            remedies = [change("set VLLM_API_KEY in the environment instead", *edits)]
        elif item.name == "hf-token":
            remedies = [change("set HF_TOKEN in the environment instead", removed(spec, item))]
        else:
            remedies = [Remedy(title="listen on 127.0.0.1 and let a reverse proxy check the key")]
        yield claim(
            item,
            title=f"--{item.name} puts a secret on the command line: every user of the machine can read it",
            explanation=(
                "`ps`, /proc and `docker inspect` show command lines, and shell histories and logs keep them. A "
                "shell variable doesn't help: the shell replaces it by its value. The engine reads the same setting "
                "from its environment."
            ),
            remedies=remedies,
            subject=item.name,
        )


@lint(
    "api-without-key",
    Severity.INFO,
    "The API listens on every network and requires no key",
    "every engine",
    "field report 001",
)
def api_without_key(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    if spec.engine is None or not spec.has_command or spec.is_ray_start or spec.flag("headless", "api-key"):
        return
    host = spec.flag("host")
    if spec.variable("VLLM_API_KEY") or (host is None and (spec.elsewhere or not spec.knows_environment)):
        return
    listen_address = (host.value if host else None) or ("127.0.0.1" if spec.engine is EngineKind.SGLANG else "0.0.0.0")  # noqa: S104
    if listen_address not in ("0.0.0.0", "::"):  # noqa: S104
        return
    if is_inside(spec) and not any(map(_is_for_all, spec.options_of("publish"))):
        return
    yield claim(
        host,
        explanation=(
            "Anyone who reaches this machine's port can use the model and its unauthenticated endpoints. That may be "
            "fine on your own network; a key costs nothing."
        ),
        settles=spec.settles_missing
        or ("" if spec.knows_environment else "whether VLLM_API_KEY is set where the engine runs"),
        remedies=[
            change("require a key", with_variable(spec, "VLLM_API_KEY", "${VLLM_API_KEY}"))
            if spec.engine is EngineKind.VLLM
            else Remedy(title="listen on 127.0.0.1 and let a reverse proxy check the key")
        ],
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


@lint(
    "recipe-default-literal",
    Severity.WARNING,
    "A recipe's variable with a default is passed as it is written",
    "sparkrun recipes",
    "sparkrun, and sparktop's own launch of its recipes",
)
def recipe_default_literal(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    for item in spec.environment if spec.launcher is Launcher.SPARKRUN and spec.kind is SourceKind.RECIPE else ():
        if re.search(r"\$\{\w+:?[-+?=]", item.value or ""):
            yield claim(
                item,
                title=f"{item.name} gets the text {item.value}, not a value",
                explanation="No shell reads a recipe: $NAME is replaced, ${NAME:-DEFAULT} is passed as it is written.",
                remedies=[change("name the variable alone", replaced(spec, item, f"${item.name}"))],
                subject=item.name,
            )


@lint(
    "loopback-in-container",
    Severity.WARNING,
    "The API listens on the container's loopback: no published port reaches it",
    "SGLang (default 127.0.0.1) in a container with its own network",
    "SGLang 0.5.12, server_args.py",
    is_live=True,
)
def loopback_in_container(spec: LaunchSpec, claim: Claim) -> Iterable[Finding]:
    host = spec.flag("host")
    address = host.value if host else "127.0.0.1" if spec.engine is EngineKind.SGLANG else None
    network = spec.option("network")
    if address not in ("127.0.0.1", "localhost") or not is_inside(spec) or not spec.has_command or spec.elsewhere:
        return
    if not spec.options_of("publish") or (network and not network.is_known):
        return
    yield claim(
        host,
        explanation=(
            "The container has its own network, so its 127.0.0.1 is not the machine's: the published port leads to "
            "an interface where nothing listens. SGLang listens on 127.0.0.1 by default."
        ),
        remedies=[
            change(
                "listen on all of the container's interfaces, and publish only to the address you want",
                (replaced(spec, host, "0.0.0.0") if host else with_flag(spec, "host", "0.0.0.0")),  # noqa: S104
            )
        ],
    )
