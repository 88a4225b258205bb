"""Make a recipe of a launch that somebody else wrote: a compose file's service, a `docker run` line, a container.

The recipe's text is written and read back, so that what is launched is what the text says. A value that isn't known is
a problem with its line, never a guess; what a recipe can't express is named among the recipe's risks, which every
review shows; a secret becomes the name of a variable that the operator sets.
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from sparktop import sanitise
from sparktop.cmdline.docker_run import MORE
from sparktop.cmdline.engine_argv import joined_words
from sparktop.cmdline.source import Item
from sparktop.cmdline.variables import Reference, parts
from sparktop.dataclass import dataclass
from sparktop.engines.labels import name_set_aside
from sparktop.errors import ConfigError
from sparktop.launchspec.folder import from_folder
from sparktop.launchspec.read.file import read_file
from sparktop.launchspec.spec import Launcher, LaunchSpec, SourceKind
from sparktop.masking import MASK, is_secret, is_secret_name, mask_text
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Dialect, Scalar
from sparktop.recipe.parameters import default_problem, main_name
from sparktop.recipe.problems import Problem, ProblemKind, shown
from sparktop.recipe.read.recipe_file import ENDINGS, Reading, read
from sparktop.recipe.render.environment import HUB_TOKENS
from sparktop.recipe.render.model_mounts import ModelPlace
from sparktop.recipe.yaml_text import dumped

_PARAMETERS = frozenset(
    {"port", "host", "tensor_parallel", "pipeline_parallel", "data_parallel", "gpu_memory_utilization"}
    | {"max_model_len", "max_num_seqs", "max_num_batched_tokens", "served_model_name", "kv_cache_dtype"}
)
"""Flags that become parameters, so that `--set` and the budget can change them."""
_RANK_FLAGS = frozenset({"nnodes", "node-rank", "master-addr", "master-port", "dist-init-addr", "headless"})
"""Flags that the launch gives each rank itself."""
_SECRET_FLAGS = {"api-key": "VLLM_API_KEY", "hf-token": "HF_TOKEN"}
"""vLLM's flags that hold a secret, and the variables that it reads instead."""
_TEXTS = {
    "network": "network",
    "ipc": "ipc",
    "shm-size": "shm_size",
    "memory": "memory_limit",
    "user": "user",
    "restart": "restart_policy",
}
_LISTS = {"device": "devices", "cap-add": "cap_add", "ulimit": "ulimit", "security-opt": "security_opt"}
_UNNEEDED = frozenset(
    {"name", "mount", "publish", "gpus", "runtime", "detach", "interactive", "tty", "env-file", "expose", "pull"}
    | {"quiet", "hostname", "stop-timeout", "build", "label", "labels", "log-driver", "log-opt", "logging"}
    | {"healthcheck", "health-cmd", "health-interval", "health-retries", "health-start-period", "health-timeout"}
    | {"depends_on", "container_name", "profiles", "pull_policy", "stdin_open", "platform", "init", "expose"}
    | {"stop_grace_period", "stop_signal", "stop-signal", "no-healthcheck", "develop", "rm", "network-alias"}
)
"""Options that are said otherwise, or that don't change what the engine does."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_UNKNOWN = re.compile(r"\$[\w{(@*#?!-]|`")
_HARMLESS = re.compile(r"(?:set|echo|printf|sleep|ulimit|nvidia-smi|date|:|true)\b")
_INSTALL = re.compile(r"(?:uv )?(?:python3? -m )?pip3? install [^;&|]*\Z")
_WRITES = re.compile(r"\b(?:echo|printf)\b[^\n;&|]*>>?\s*[\w/$\"'.]")
"""Words that are written into a file: where they go is left out of a command that was read."""
_CACHED = re.compile(r"models--([\w.-]+?)--([\w.-]+)(?:/snapshots/([0-9a-f]{7,64}))?(?:/|\Z)")
_IDLE_WRAPPERS = frozenset({"exec", "env", "nohup", "sudo", "time", "setsid", "then", "do", "-E", "tini", "--"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A recipe made of a launch, or why there is none."""

    name: str
    """The container's; "" where it has none."""
    text: str
    """The recipe file; "" where a value is unknown."""
    reading: Reading
    """Of that text; its problems are those of the launch."""
    kind: str
    """What it was read from: "compose file"."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values of secrets that the launch holds, by the names that the recipe asks for; never written."""


def adopted(spec: LaunchSpec, *, folder: str, name: str = "", overrides: Sequence[str] = ()) -> Adopted:
    """The recipe of this launch.

    Args:
        folder: absolute; what relative paths are relative to.
        name: the container's, where it isn't the launch's own.
        overrides: further compose files of the project, which aren't read.
    """
    adoption = _Adoption(spec, folder)
    for override in overrides:
        adoption.leave(None, f"{shown(override)} changes what compose starts, and isn't read")
    container = name_set_aside(name) or name or adoption.name()
    data = adoption.recipe(container)
    problems = tuple(sorted(dict.fromkeys(adoption.problems), key=lambda problem: problem.line))
    if any(problem.is_error for problem in problems):
        return Adopted(name=container, text="", reading=Reading(recipe=None, problems=problems), kind=_kind(spec))
    text = f"# {shown(container) or 'An engine'} {adoption.how()}, by `sparktop recipes adopt`.\n" + dumped(data)
    reading = read(text, f"{container or str(spec.engine)}.yaml")
    # What the reader finds is the launch's own: its lines are of a text that nobody has seen.
    found = tuple(replace(problem, file=spec.document.name, line=adoption.line(None)) for problem in reading.problems)
    recipe = reading.recipe and replace(reading.recipe, path=spec.document.name, dialect=Dialect.ADOPTED)
    return Adopted(
        name=container,
        text=text if recipe else "",
        reading=Reading(recipe=recipe, problems=(*problems, *found)),
        kind=_kind(spec),
        secrets=adoption.secrets,
    )


def read_launch(text: str, path: Path, engine: str = "") -> Adopted | None:
    """The recipe of the engine that a compose file, script, unit or `docker inspect` starts; None for another text.

    Args:
        engine: its service's or container's name, or its line, where the file starts several.
    """
    is_yaml = path.suffix in ENDINGS
    try:
        reading = read_file(path, text, os.environ)
    except ConfigError:
        if is_yaml:
            return None  # as the reader of recipes says
        raise
    name = sanitise.line(str(path))
    specs = [spec for spec in reading.specs if spec.engine is not None and spec.kind is not SourceKind.RECIPE]
    if not specs:
        is_launch = not is_yaml or reading.kind in (SourceKind.COMPOSE, SourceKind.UNIT)
        return unadopted(name, reading.kind, reading.note) if is_launch and reading.note else None
    chosen = [spec for spec in specs if engine in (spec.name, str(spec.line_of(None)))] if engine else specs
    if len(chosen) != 1:
        count = Counter(spec.name for spec in specs)
        places = (spec.name if count[spec.name] == 1 else spec.line_of(None) or spec.name for spec in specs)
        names = ", ".join(dict.fromkeys(f"{name}#{place}" for place in places))
        what = f"starts no engine {shown(engine)}" if engine and not chosen else f"starts {len(specs)} engines"
        problem = Problem(file=name, line=1, key="", text=what, remedy=f"name one: {names}", kind=ProblemKind.MISSING)
        return Adopted(name="", text="", reading=Reading(recipe=None, problems=(problem,)), kind=reading.kind)
    return adopted(chosen[0], folder=str(path.absolute().parent), overrides=_overrides(path))


def _overrides(path: Path) -> tuple[str, ...]:
    """The files that `docker compose up` would lay over this one by itself."""
    if path.stem not in ("compose", "docker-compose"):
        return ()
    names = [f"{path.stem}.override{ending}" for ending in (".yaml", ".yml")]
    return tuple(name for name in names if path.with_name(name).is_file())


def unadopted(name: str, kind: str, why: str) -> Adopted:
    """Where no recipe can be made of it at all."""
    problem = Problem(file=name, line=1, key="", text=why, kind=ProblemKind.MISSING)
    return Adopted(name=name, text="", reading=Reading(recipe=None, problems=(problem,)), kind=kind)


def _kind(spec: LaunchSpec) -> str:
    return "container" if spec.kind is SourceKind.INSPECT else spec.kind.value


def _source(spec: LaunchSpec) -> str:
    return shown(spec.document.name.rpartition("/")[2], 120)


class _Adoption:
    """One launch on its way to a recipe: what is unknown, and what the recipe leaves out."""

    def __init__(self, spec: LaunchSpec, folder: str) -> None:
        self.spec = spec
        self.folder = folder
        self.problems: list[Problem] = []
        self.risks: list[str] = []
        self.secrets: dict[str, str] = {}
        self.has_model_inside = False
        self.installs: list[str] = []
        """What the container's command installs before the engine: done once, in an image of its own."""
        self.mounts = [mount for item in spec.options_of("mount") if (mount := self.mount(item))]

    def line(self, item: Item | None) -> int:
        return self.spec.line_of(item) or 1

    def refuse(self, item: Item | None, text: str, remedy: str = "", *, key: str = "") -> None:
        """A value that isn't known, or a launch that can't be one of ours."""
        self.problems.append(
            Problem(
                file=self.spec.document.name,
                line=self.line(item),
                key=key,
                text=sanitise.line(mask_text(text)),
                remedy=sanitise.line(remedy),
                kind=ProblemKind.MISSING,
            )
        )

    def leave(self, item: Item | None, text: str) -> None:
        """What the recipe leaves out or changes: shown before each launch."""
        place = "" if self.spec.kind is SourceKind.INSPECT else f" ({_source(self.spec)}:{self.line(item)})"
        self.risks.append(sanitise.line(f"{mask_text(text)}{place}"))

    def known(self, item: Item, key: str, value: str | None = None) -> str:
        """The value of an item; refused where it stands elsewhere."""
        text = (item.value or "") if value is None else value
        if _UNKNOWN.search(text):
            why = f"`{shown(text)}` is set elsewhere, so its value isn't known"
            self.refuse(item, why, _how_to_set(self.spec), key=key)
        elif doubt := self.spec.doubt(item):
            self.leave(item, f"{key} is `{shown(text)}`, as the file has it: {doubt} may change it")
        return text

    # the launch as a whole

    def name(self) -> str:
        named = self.spec.option("name")
        if named is not None and named.is_known:
            return named.value or ""
        if self.spec.kind is SourceKind.COMPOSE:
            return f"{self.project()}-{self.spec.name}-1"
        return self.spec.name if self.spec.kind is SourceKind.INSPECT else ""

    def how(self) -> str:
        return "as it runs" if self.spec.kind is SourceKind.INSPECT else f"as {_source(self.spec)} starts it"

    def project(self) -> str:
        """The name of the compose project, as compose makes it of its folder's."""
        folder = self.spec.project or posixpath.basename(self.folder.rstrip("/"))
        return re.sub(r"[^a-z0-9_-]", "", folder.lower()).lstrip("_-") or "default"

    def recipe(self, container: str) -> dict[str, object]:
        """The recipe's mapping; problems on the way say why it is none."""
        spec = self.spec
        if not self.is_launchable():
            return {}
        if container and not _NAME.fullmatch(container):
            self.refuse(spec.option("name"), f"`{shown(container)}` is no name that Docker takes", key="name")
        environment = dict(self.environment())
        options = self.options()
        model, revision, served = self.model()
        defaults: dict[str, Scalar] = {"name": container} if container else {}
        if (port := self.published_port(options)) is not None:
            defaults["port"] = port
        command = self.command(defaults, revision, served, environment)
        data: dict[str, object] = {
            "recipe_version": "2",
            "model": model,
            "model_revision": revision,
            "runtime": str(spec.engine),
            "container": self.image(),
            "description": f"{container or spec.engine} {self.how()}",
            "min_nodes": spec.nodes,
            "max_nodes": spec.nodes,
            "defaults": defaults,
            "command": command,
            "env": environment,
            "executor_config": options,
            "pre_exec": self.installs,
            "runtime_cache": False,  # what it was started with, and nothing besides
        }
        if spec.guess:
            self.leave(None, f"taken for {spec.engine} by its flags: {spec.guess} would show it")
        for name in spec.defaults:
            self.leave(None, f"{name} has its default: nothing beside the file sets it")
        if any((label.value or "").startswith("com.docker.compose.project=") for label in spec.options_of("label")):
            self.leave(None, "compose made it: `docker compose up` starts its own container again, beside this one")
        if spec.kind is SourceKind.COMPOSE:
            up = f"`docker compose up` in {self.folder}"
            self.leave(None, f"{up} starts its own container again, beside this one: take the service out of the file")
        source = {"source": f"{_kind(spec)} {spec.document.name}"}
        own: dict[str, object] = {"model_inside": True} if self.has_model_inside else {}
        own |= {"risks": list(dict.fromkeys(self.risks)), "provenance": [source]}
        data["runtime_config"] = {"sparktop": own}
        return {key: value for key, value in data.items() if value not in ("", {}, [])}

    def is_launchable(self) -> bool:
        spec = self.spec
        if spec.engine is None:
            self.refuse(None, f"{spec.name or 'it'} starts no engine by itself")
        elif spec.has_container is False:
            self.refuse(
                None,
                "the engine runs without a container, and sparktop launches containers",
                "start it with `docker run IMAGE` instead, for example vllm/vllm-openai",
            )
        elif spec.has_container is None or (spec.image is None and not self.is_built()):
            self.refuse(None, "the container that the engine runs in is described elsewhere")
        elif not spec.has_command:
            self.refuse(spec.image, "the command that starts the engine in this container is written elsewhere")
        elif spec.cuts:
            self.refuse(spec.cuts[0], "a comment ends the command here, so its rest never counts")
        elif (more := self.more()) is not None:
            self.refuse(more, f"more options of the container come from `{shown(more.value)}`")
        elif spec.elsewhere and not spec.elsewhere.startswith("--config") and not _is_own(spec.elsewhere):
            self.refuse(None, f"more arguments come from `{shown(spec.elsewhere)}`", _how_to_set(spec))
        else:
            self.check_prelude()
            return not self.problems
        return False

    def more(self) -> Item | None:
        """What stands for further options of the container; `${NAME:+OPTION}` is none, where nothing sets NAME."""
        for item in self.spec.options_of(MORE):
            if not (switch := re.match(r"\$\{(\w+):?\+", item.value or "")):
                return item
            self.leave(item, f"an option is left out: it is given only where {switch[1]} is set")
        return None

    def check_prelude(self) -> None:
        """What runs in the container before the engine: what it installs is done once, anything else is refused."""
        writes = _WRITES.search(self.spec.document.text) is not None
        for row in self.spec.prelude.splitlines():
            if _INSTALL.match(row) and not _UNKNOWN.search(row):
                self.installs.append(shlex.join(row.split()))
            elif not _HARMLESS.match(row) or (writes and row.startswith(("echo", "printf"))):
                text = f"`{shown(row)}` runs in the container before the engine"
                self.refuse(None, text, "build an image that has it: docker commit, or a Dockerfile")
                return

    def is_built(self) -> bool:
        return self.spec.option("build") is not None

    def image(self) -> str:
        spec = self.spec
        if spec.image is None:
            self.leave(spec.option("build"), "`docker compose build` makes its image; sparktop builds none")
            return f"{self.project()}-{spec.name}"
        return self.known(spec.image, "image").removeprefix("docker.io/library/")

    # the model

    def model(self) -> tuple[str, str, str]:
        """(the model, its revision, the name it is served by where the engine would take the path's)."""
        item = self.spec.model
        if item is None:
            self.refuse(None, "no model is named: the engine takes its own default")
            return "", "", ""
        name = self.known(item, "model")
        revision = self.spec.flag("revision")
        pinned = self.known(revision, "revision") if revision is not None else ""
        if cached := _CACHED.search(name):
            return f"{cached[1]}/{cached[2]}", cached[3] or pinned, name
        if not name.startswith(("/", "~", ".")):
            return name, pinned, ""
        for source, target, _ in sorted(self.mounts, key=lambda mount: -len(mount[1])):
            if name == target or name.startswith(target.rstrip("/") + "/"):
                if not source.startswith(("/", "~")):
                    return self.inside(item, name, f"the volume {source}")
                return source.rstrip("/") + name[len(target.rstrip("/")) :], "", name
        return self.inside(item, name, "the image")

    def inside(self, item: Item, name: str, where: str) -> tuple[str, str, str]:
        """A model that only the container has."""
        self.has_model_inside = True
        self.leave(item, f"the model is in {where}, where sparktop can't look: what memory it needs isn't known")
        return name, "", name

    # the command

    def command(self, defaults: dict[str, Scalar], revision: str, served: str, environment: dict[str, str]) -> str:
        """The command template; its main flags become parameters, in `defaults`."""
        spec = self.spec
        assert spec.engine is not None  # is_launchable
        rows = ["--port {port}"] if "port" in defaults else []
        literals: list[list[str]] = []
        for item in spec.flags:
            main = main_name(item.name)
            if item.name in ("model", "model-path") or (item.name == "revision" and revision):
                continue
            if (spec.nodes > 1 and item.name in _RANK_FLAGS) or (main == "port" and main in defaults):
                continue
            if (secret := _SECRET_FLAGS.get(item.name)) and spec.engine is EngineKind.VLLM:
                self.keep_secret(secret, item.value or "")
                environment[secret] = f"${secret}"
                continue
            given = () if item.value is None else (item.value,)
            values = [*given, *(value for value in item.rest if not _is_own(value))]
            for value in values:
                self.known(item, f"--{item.name}", value)
            flag = f"--{item.name}" if item in spec.misplaced else item.spelled
            is_single = len(values) == 1 and not default_problem(main, values[0])
            if main in _PARAMETERS and main not in defaults and is_single:
                defaults[main] = _scalar(values[0])
                rows.append(f"{flag} {{{main}}}")
                continue
            words = [flag] if not values else [*joined_words(flag, values[0], spec.engine), *values[1:]]
            literals.append(words)
            rows.append("")
        if served and spec.flag("served-model-name") is None:
            literals.append(["--served-model-name", served])
            rows.append("")
        is_doubled = any(re.search(r"\{[A-Za-z_]|\{\{|\}\}", word) for words in literals for word in words)
        texts = iter(" ".join(map(shlex.quote, words)) for words in literals)
        rows = [row or _braced(next(texts), is_doubled) for row in rows]
        head = "vllm serve {model}"
        if spec.engine is EngineKind.SGLANG:
            head = "python3 -m sglang.launch_server --model-path {model}"
        return " \\\n  ".join((head, *rows)) + "\n"

    # the container

    def environment(self) -> Iterator[tuple[str, str]]:
        named = {item.value for item in self.spec.environment if is_secret(item.name, item.value or "")}
        named |= {flag.value for name in _SECRET_FLAGS if (flag := self.spec.flag(name)) is not None}
        for name, item in {item.name: item for item in self.spec.environment}.items():
            value = item.value or ""
            is_whole = self.spec.kind is SourceKind.INSPECT  # nothing in it is a variable's
            if not is_whole:
                value = _plain_references(value)
            is_held = is_secret(name, value) or (len(value) > 5 and item.value in named)  # a copy of another's secret
            is_reference = re.fullmatch(r"(?:[^$`]|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\})*\$.*", value) is not None
            if is_whole and (is_held or "$" in value):
                self.secrets[name] = value
                yield name, f"${name}"
            elif is_whole or not (is_held or is_secret_name(name)):
                yield name, value if is_reference else _braced(self.known(item, f"env.{name}", value), "{" in value)
            elif is_reference and not _UNKNOWN.search(re.sub(r"\$\{?[A-Za-z_]\w*\}?", "", value)):
                yield name, value  # the operator's own variables, as they are for the file
            elif value or name in HUB_TOKENS:
                self.keep_secret(name, value)
                yield name, f"${name}"
            else:
                self.leave(item, f"{name} is left out: it is empty unless it is set where the file is started")

    def keep_secret(self, name: str, value: str) -> None:
        if value and not _UNKNOWN.search(value) and value != MASK:
            self.secrets[name] = value

    def options(self) -> dict[str, object]:
        """The recipe's executor_config."""
        options: dict[str, object] = {}
        for item in self.spec.options:
            if name := _TEXTS.get(item.name):
                options[name] = self.known(item, item.name)
            elif name := _LISTS.get(item.name):
                if "nvidia.com/gpu" in (item.value or ""):
                    options |= {"gpus": "all", "gpu_access_mode": "cdi"}
                elif (value := self.known(item, item.name)) not in (items := _list(options, name)):
                    items.append(value)
            elif item.name == "privileged":
                options["privileged"] = True
            elif item.name not in _UNNEEDED:
                self.leave(item, f"{item.name} is left out: {shown(item.value or 'a recipe has no such option')}")
        gpus = self.spec.option("gpus")
        asks_nvidia = (runtime := self.spec.option("runtime")) is not None and runtime.value == "nvidia"
        if self.spec.launcher is Launcher.EUGR:
            options |= {"privileged": True}
        if "gpus" not in options:
            options["gpus"] = self.gpus(gpus) if gpus is not None else "all" if asks_nvidia else ""
        mounts = [mount for mount in self.mounts if not self.is_unseen_cache(*mount)]
        volumes = [f"{source}:{target}" + (":ro" if is_read_only else "") for source, target, is_read_only in mounts]
        if volumes:
            options["volumes"] = volumes
        if (wrapper := self.wrapper()) is not None:
            options["entrypoint"] = wrapper
        return options

    def is_unseen_cache(self, source: str, target: str, _: bool) -> bool:
        """Whether the mount is a Docker volume with the hub's cache: the launch mounts the user's own then."""
        own = next((item.value for item in self.spec.environment if item.name == "HF_HOME"), "")
        if target != (own or ModelPlace.ROOT_CACHE) or source.startswith(("/", "~")):
            return False
        self.leave(
            None, f"the volume {source} is left out: sparktop can't see its models, and takes the user's own cache"
        )
        return True

    def gpus(self, item: Item) -> str:
        text = self.known(item, "gpus").strip("\"'")
        return "all" if text.startswith(("count", "all", "-1")) or text.isdecimal() else text

    def wrapper(self) -> str | None:
        """The program that the engine is started through; refused where a recipe can't name it."""
        words = [
            word
            for word in self.spec.wrapper
            if word.rpartition("/")[2] not in _IDLE_WRAPPERS and not re.match(r"[A-Za-z_]\w*=", word)
        ]
        if not words or words == ["/opt/nvidia/nvidia_entrypoint.sh"]:
            return None
        if len(words) > 1 or not words[0].startswith("/"):
            self.refuse(None, f"the engine is started through `{shown(' '.join(words))}`, which a recipe can't express")
            return None
        return words[0]

    def mount(self, item: Item) -> tuple[str, str, bool] | None:
        """(source on the node, target, whether it is read-only); None where it is left out."""
        text = item.value or ""
        source, colon, rest = _split_mount(text)
        target, _, mode = rest.partition(":")
        if not colon or not source:
            self.leave(item, f"the volume {shown(text)} is left out: it is made anew with each container")
            return None
        in_folder = from_folder(source)
        if in_folder is not None:
            source = posixpath.normpath(posixpath.join(self.folder, in_folder))
            if self.spec.kind is not SourceKind.INSPECT:
                self.leave(item, f"{shown(text)}: {source} must be there on the Spark")
        elif re.match(r"\w", source) and self.spec.kind is SourceKind.COMPOSE:
            source = dict(self.spec.volumes).get(source) or f"{self.project()}_{source}"
        home = re.sub(r"\A(?:\$HOME\b|\$\{HOME\})", "~", source)
        self.known(replace(item, value=home), "mount", f"{home}:{target}")
        return home, target.rstrip("/") or "/", "ro" in mode.split(",")

    def published_port(self, options: dict[str, object]) -> int | None:
        """The port that the engine has to listen on, as it is published on it; None: its own. Sets the address."""
        spec = self.spec
        if options.get("network") == "host" or str(options.get("network", "")).startswith("container:"):
            return None
        if spec.launcher is not Launcher.DOCKER and spec.kind is not SourceKind.COMPOSE:
            return None
        options.setdefault("network", "bridge")
        assert spec.engine is not None  # is_launchable
        listens = spec.flag("port")
        port = (listens.value if listens is not None else None) or str(spec.engine.traits.port)
        for item in spec.options_of("publish"):
            address, outside, inside = _published(self.known(item, "publish"))
            if inside != port:
                self.leave(item, f"the port {shown(item.value)} is left out: the engine listens on {port}")
                continue
            if address not in ("", "0.0.0.0", "::"):  # noqa: S104 - what the file says
                options["publish_address"] = address
            if outside != port and outside.isdecimal():
                self.leave(item, f"the engine listens on {outside} in its container too, not on {port}")
                return int(outside)
            return None
        options["publish_address"] = "127.0.0.1"
        self.leave(None, f"it publishes no port of the engine: sparktop publishes {port}, on 127.0.0.1 alone")
        return None


def _is_own(text: str) -> bool:
    """Whether the words are a script's own arguments, or empty where nothing sets them: none, as it is started here."""
    return text in ("$@", "$*", "${@}", "${*}") or re.fullmatch(r"\$\{\w+(?:\[[@*]\])?:?-\}", text) is not None


def _plain_references(text: str) -> str:
    """The text with `${NAME:?message}` as `${NAME}`, and `${NAME:-}` as nothing."""

    def plain(part: str | Reference) -> str:
        if isinstance(part, str):
            return part
        return "" if part.has_default else f"${{{part.name}}}"

    pieces = parts(text)
    settled = [part for part in pieces if isinstance(part, Reference) and (part.is_demanded or part.form == ":-")]
    return "".join(map(plain, pieces)) if settled else text


def _how_to_set(spec: LaunchSpec) -> str:
    if spec.kind is SourceKind.COMPOSE:
        return f"set it in {shown(posixpath.join(posixpath.dirname(spec.document.name), '.env'))}, or export it"
    return "write it into the file or export it, or start it and adopt the running container"


def _braced(text: str, is_doubled: bool) -> str:
    return text.replace("{", "{{").replace("}", "}}") if is_doubled else text


def _scalar(text: str) -> Scalar:
    """A parameter's value, typed where YAML would write it the same."""
    for kind in (int, float):
        try:
            if str(kind(text)) == text:
                return kind(text)
        except ValueError:
            pass
    return text


def _list(options: dict[str, object], name: str) -> list[object]:
    items = options.setdefault(name, [])
    assert isinstance(items, list)
    return items


def _split_mount(text: str) -> tuple[str, str, str]:
    """The text at its first colon outside of `${...}` and `$(...)`."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char in "{(") - (char in "})")
        if char == ":" and depth <= 0:
            return text[:at], ":", text[at + 1 :]
    return text, "", ""


def _published(text: str) -> tuple[str, str, str]:
    """(address, port of the host, port of the container) of a `--publish`."""
    plain = text.partition("/")[0]
    rest, _, inside = plain.rpartition(":")
    address, _, outside = rest.rpartition(":")
    return address.strip("[]"), outside or inside, inside
