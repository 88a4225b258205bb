"""Make a recipe of one launch that somebody else wrote: its container, its model, and the command in it."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator

from sparktop.cmdline.docker_options import by_name
from sparktop.cmdline.docker_run import MORE, split_mount
from sparktop.cmdline.engine_argv import joined_words
from sparktop.cmdline.engine_flags import SECRET_FLAGS
from sparktop.cmdline.shell import takes_arguments
from sparktop.cmdline.source import Item
from sparktop.engines.images import Family
from sparktop.launchspec.folder import from_folder
from sparktop.launchspec.read.commands import COMMAND_CHARS
from sparktop.launchspec.spec import Launcher, LaunchSpec, SourceKind
from sparktop.masking import MASK, is_secret, is_secret_name, mask_text
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Scalar
from sparktop.recipe.parameters import default_problem, main_name
from sparktop.recipe.problems import shown
from sparktop.recipe.read.source_values import OPEN, UNKNOWN, SourceValues, how_to_set, with_braces
from sparktop.recipe.render.environment import HUB_TOKENS, NODES_OWN
from sparktop.recipe.render.model_mounts import ModelPlace

_PARAMETERS = frozenset(
    {"port", "host", "tensor_parallel", "pipeline_parallel", "data_parallel", "gpu_memory_utilization"}
    | {"max_model_len", "max_num_seqs", "max_num_batched_tokens", "served_model_name", "kv_cache_dtype"}
)
"""Flags that become parameters, so that `--set` and the budget can change them."""
_RANKS_OWN = NODES_OWN | {"NODE_RANK", "MASTER_PORT", "HEADLESS"}
"""Variables that the launch gives each rank itself, or doesn't need."""
_UNNEEDED = frozenset(
    {"name", "mount", "publish", "gpus", "runtime", "detach", "interactive", "tty", "env-file", "expose", "pull"}
    | {"quiet", "hostname", "stop-timeout", "build", "label", "labels", "log-driver", "log-opt", "logging"}
    | {"healthcheck", "health-cmd", "health-interval", "health-retries", "health-start-period", "health-timeout"}
    | {"depends_on", "container_name", "profiles", "pull_policy", "stdin_open", "platform", "init", "expose"}
    | {"stop_grace_period", "stop_signal", "stop-signal", "no-healthcheck", "develop", "rm", "network-alias"}
)
"""Options that are said otherwise, or that don't change what the engine does."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_DEMANDED, _EMPTY = re.compile(r"\$\{([A-Za-z_]\w*):?\?[^{}]*\}"), re.compile(r"\$\{[A-Za-z_]\w*:-\}")
_EUGRS_IMAGE = "vllm-node"
_HARMLESS = re.compile(r"(?:set|echo|printf|sleep|ulimit|nvidia-smi|date|:|true)\b")
_INSTALL = re.compile(r"(?:uv )?(?:python3? -m )?pip3? install [^;&|]*\Z")
_WRITES = re.compile(r"\b(?:echo|printf)\b[^\n;&|]*>>?\s*[\w/$\"'.]")
"""Words that are written into a file: where they go is left out of a command that was read."""
_PATH = ("/", "~", OPEN)
"""How a path on the Spark begins."""
_CACHED = re.compile(r"models--([\w.-]+?)--([\w.-]+)(?:/snapshots/([0-9a-f]{7,64}))?(?:/|\Z)")
_NVIDIAS = "/opt/nvidia/nvidia_entrypoint.sh"
_IDLE_WRAPPERS = frozenset({"exec", "env", "nohup", "sudo", "time", "setsid", "then", "do", "-E", "tini", "--"})


def _install(row: str) -> str:
    """A command that runs before the engine, where it is an install that is known whole; else ""."""
    if not _INSTALL.match(row) or UNKNOWN.search(row) or len(row) >= COMMAND_CHARS:
        return ""
    try:
        return shlex.join(shlex.split(row))
    except ValueError:  # a word of it spans lines
        return ""


class Adoption(SourceValues):
    """One launch on its way to a recipe: what is unknown, and what the recipe leaves out."""

    def __init__(self, spec: LaunchSpec, folder: str) -> None:
        super().__init__(spec)
        self.folder = folder
        self.secrets: dict[str, str] = {}
        self.default_secrets: set[str] = set()
        """Of these, those that are the default of a variable of their name."""
        self.dotenv_secrets: set[str] = set()
        """Those that a compose file's `.env` gives a variable of their name."""
        self.has_model_inside = False
        self.is_published = True
        """Whether the engine can be reached from outside its container, as the launch has it."""
        self.shell: list[str] = []
        """The entrypoint that runs what its shell runs before the engine."""
        self.installs: list[str] = []
        """What the container's command installs before the engine: done once, in an image of its own."""
        mounts = [item for item in spec.options_of("mount") if not self.is_conditional(item)]
        self.mounts = [mount for item in mounts if (mount := self.mount(item))]

    # the launch as a whole

    def name(self) -> str:
        named = self.spec.option("name")
        if named is not None and named.is_known:
            return named.value or ""
        if self.spec.kind is SourceKind.COMPOSE:
            return f"{self.project()}-{self.spec.name}-1"
        return self.spec.name if self.spec.kind is SourceKind.INSPECT else ""

    def how(self) -> str:
        return "as it runs" if self.spec.kind is SourceKind.INSPECT else f"as {self.source} starts it"

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
        if wrapper := self.wrapper():
            options["entrypoint"] = wrapper if len(wrapper) > 1 else wrapper[0]
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
            self.warn(None, f"taken for {spec.engine} by its flags: {spec.guess} would show it")
        for name in (one for one in spec.defaults if one not in self.doubted):
            self.warn(None, f"{name} has its default: nothing beside the file sets it")
        if any((label.value or "").startswith("com.docker.compose.project=") for label in spec.options_of("label")):
            self.leave(None, "compose made it: `docker compose up` starts its own container again, beside this one")
        if spec.kind is SourceKind.COMPOSE:
            up = f"`docker compose up` in {self.folder}"
            self.leave(None, f"{up} starts its own container again, beside this one: take the service out of the file")
        source = {"source": f"{kind_of(spec)} {spec.document.name}"}
        own: dict[str, object] = {"model_inside": True} if self.has_model_inside else {}
        own |= {"settings": self.settings} if self.settings else {}
        own |= {"risks": list(dict.fromkeys(self.risks)), "provenance": [source]}
        data["runtime_config"] = {"sparktop": own}
        return {key: with_braces(value) for key, value in data.items() if value not in ("", {}, [])}

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
        elif spec.has_container is None and not spec.has_command:
            runs = next((item.value for item in spec.unit if item.name == "ExecStart" and item.value), spec.name)
            self.refuse(
                None, f"it starts no engine by itself, but runs `{shown(runs)}`", "launch the file that it names"
            )
        elif spec.has_container is None:
            text = f"`docker exec` starts the engine in the container {shown(spec.name)}, which this file doesn't start"
            self.refuse(None, text, f"launch what starts it; or, as it runs: {_as_it_runs(spec.name)}")
        elif spec.image is None and not self.is_built():
            self.refuse(None, "no image is named: the container is described elsewhere")
        elif not spec.has_command:
            by = (
                f"a command of its own, `{shown(' '.join(spec.wrapper))}`,"
                if spec.wrapper
                else "its image's own command"
            )
            how = "name the HOST that has the image, or " if spec.is_by_image else ""
            how += f"start it once and launch it as it runs: {_as_it_runs(self.name())}"
            self.refuse(spec.image, f"{by} starts the engine, which isn't in this file", how)
        elif spec.cuts:
            self.refuse(spec.cuts[0], "a comment ends the command here, so its rest never counts")
        elif (more := self.more()) is not None:
            self.refuse(more, f"more options of the container come from `{shown(more.value)}`")
        elif unknown := [
            word for word in spec.elsewhere if not word.startswith("--config") and not self.is_empty(word)
        ]:
            self.refuse(None, f"more arguments come from `{shown(unknown[0])}`", how_to_set(spec))
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
        """What runs in the container before the engine: what it installs is done once, else its shell runs it again."""
        spec = self.spec
        writes = _WRITES.search(spec.document.text) is not None
        rows = [
            row
            for row in spec.prelude.splitlines()
            if not _HARMLESS.match(row) or (writes and row.startswith(("echo", "printf")))
        ]
        own = [item for item in spec.environment if item.name in spec.exported and UNKNOWN.search(item.value or "")]
        is_secret = mask_text(spec.before) != spec.before
        installs = [_install(row) for row in rows]
        if not own and not is_secret and all(installs):
            self.installs = installs
            return
        what = rows[0] if rows else f"export {own[0].name}={own[0].value}"
        text = f"`{shown(what)}` runs in the container before the engine"
        why = ""
        if is_secret:
            why = ", and its text may hold a secret"
        elif not spec.shell:
            why = ", in a branch of its shell, or outside of one"
        elif takes_arguments(spec.before):
            why = ", and its shell reads its own arguments or the place of its file"
        if why:
            self.refuse(None, text + why, "build an image that has it: docker commit, or a Dockerfile")
            return
        self.warn(None, f"{text}, each time it starts, with all that its shell runs up to there")
        self.shell = [*spec.shell, f'{spec.before}exec "$@"', spec.shell[0]]

    def is_built(self) -> bool:
        return self.spec.option("build") is not None or self.spec.launcher is Launcher.EUGR

    def image(self) -> str:
        spec = self.spec
        if spec.image is None and spec.launcher is Launcher.EUGR:
            self.leave(None, f"no image is named: spark-vllm-docker takes {_EUGRS_IMAGE}")
            return _EUGRS_IMAGE
        if spec.image is None:
            self.warn(spec.option("build"), "`docker compose build` makes its image; sparktop builds none")
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
        if not name.startswith(("/", "~", ".")):  # nor is a setting a path in the container: it is one on the Spark
            return name, pinned, ""
        for source, target, _ in sorted(self.mounts, key=lambda mount: -len(mount[1])):
            if name == target or name.startswith(target.rstrip("/") + "/"):
                if not source.startswith(_PATH):
                    return self.inside(item, name, f"the volume {source}")
                return source.rstrip("/") + name[len(target.rstrip("/")) :], "", name
        return self.inside(item, name, "the image")

    def inside(self, item: Item, name: str, where: str) -> tuple[str, str, str]:
        """A model that only the container has."""
        self.has_model_inside = True
        self.warn(item, f"the model is in {where}, where sparktop can't look: what memory it needs isn't known")
        return name, "", name

    # the command

    def command(self, defaults: dict[str, Scalar], revision: str, served: str, environment: dict[str, str]) -> str:
        """The command template; its main flags become parameters, in `defaults`."""
        spec = self.spec
        assert spec.engine is not None  # is_launchable
        rows = ["--port {port}"] if "port" in defaults else []
        given_to_ranks = {*spec.engine.traits.rank_flags, "headless"}
        literals: list[list[str]] = []
        for item in spec.flags:
            main = main_name(item.name)
            if item.name in ("model", "model-path") or (item.name == "revision" and revision):
                continue
            if (spec.nodes > 1 and item.name in given_to_ranks) or (main == "port" and main in defaults):
                continue
            if self.is_conditional(item):
                continue
            if (secret := SECRET_FLAGS.get(item.name)) and spec.engine is EngineKind.VLLM:
                self.keep_secret(secret, item)
                environment[secret] = f"${secret}"
                continue
            given = () if item.value is None else (item.value,)
            if any(mask_text(value) != value for value in (*given, *item.rest)):
                text = f"--{item.name} holds a secret, which every user of the machine can read"
                self.refuse(item, text, "give it to the engine by a variable or a mounted file", key="command")
                continue
            values = [*given, *(value for value in item.rest if not self.is_empty(value))]
            values = [self.known(item, f"--{item.name}", value) for value in values]
            flag = f"--{item.name}" if item in spec.misplaced else item.spelled
            is_single = len(values) == 1 and not default_problem(main, str(with_braces(values[0])))
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
        is_doubled = any(re.search(r"\{[A-Za-z_\ue000]|\{\{|\}\}", word) for words in literals for word in words)
        texts = iter(" ".join(map(shlex.quote, words)) for words in literals)
        rows = [row or _braced(next(texts), is_doubled) for row in rows]
        head = spec.engine.traits.starts.replace("MODEL", "{model}")
        return " \\\n  ".join((head, *rows)) + "\n"

    # the container

    def environment(self) -> Iterator[tuple[str, str]]:
        named = {item.value for item in self.spec.environment if is_secret(item.name, item.value or "")}
        named |= {flag.value for name in SECRET_FLAGS if (flag := self.spec.flag(name)) is not None}
        for name, item in {item.name: item for item in self.spec.environment}.items():
            if self.shell and name in self.spec.exported:
                continue  # by the shell itself
            if self.spec.nodes > 1 and name in _RANKS_OWN and "$" in (item.value or ""):
                self.leave(item, f"{name} is left out: the launch sets what differs between its nodes")
                continue
            value = item.value or ""
            is_whole = self.spec.kind is SourceKind.INSPECT  # nothing in it is a variable's
            if not is_whole:
                value = _DEMANDED.sub(r"${\1}", _EMPTY.sub("", value))
            if not is_whole and not is_secret_name(name):
                value = self.settled(item, value)
            is_held = is_secret(name, value) or (len(value) > 5 and item.value in named)  # a copy of another's secret
            is_reference = re.fullmatch(r"(?:[^$`]|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\})*\$.*", value) is not None
            if is_whole and (is_held or "$" in value):
                self.secrets[name] = value
                yield name, f"${name}"
            elif is_whole or not (is_held or is_secret_name(name)):
                yield name, value if is_reference else _braced(self.known(item, f"env.{name}", value), "{" in value)
            elif is_reference and not UNKNOWN.search(re.sub(r"\$\{?[A-Za-z_]\w*\}?", "", value)):
                yield name, value  # the operator's own variables, as they are for the file
            elif value or name in HUB_TOKENS:
                self.keep_secret(name, item)
                yield name, f"${name}"
            else:
                self.leave(item, f"{name} is left out: it is empty unless it is set where the file is started")

    def keep_secret(self, name: str, item: Item) -> None:
        value = item.value or ""
        if value and not UNKNOWN.search(value) and value != MASK:
            self.secrets[name] = value
            self.default_secrets -= {name}
            self.default_secrets |= {name} & self.spec.variables(item)
            self.dotenv_secrets -= {name}
            self.dotenv_secrets |= {name}.intersection(self.spec.dotenv if item.value_span is None else ())

    def options(self) -> dict[str, object]:
        """The recipe's executor_config."""
        options: dict[str, object] = {}
        for item in self.spec.options:
            option = by_name().get(item.name)
            if "nvidia.com/gpu" in (item.value or "") and item.name == "device":
                options |= {"gpus": "all", "gpu_access_mode": "cdi"}
            elif option is not None and option.recipe:
                value = self.known(item, item.name)
                if option.form != "list":
                    options[option.recipe] = value
                elif value not in (items := _list(options, option.recipe)):
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
        return options

    def is_unseen_cache(self, source: str, target: str, _: bool) -> bool:
        """Whether the mount is a Docker volume with the hub's cache: the launch mounts the user's own then."""
        own = next((item.value for item in self.spec.environment if item.name == "HF_HOME"), "")
        if target != (own or ModelPlace.ROOT_CACHE) or source.startswith(_PATH):
            return False
        self.leave(
            None, f"the volume {source} is left out: sparktop can't see its models, and takes the user's own cache"
        )
        return True

    def gpus(self, item: Item) -> str:
        text = self.known(item, "gpus").strip("\"'")
        return "all" if text.startswith(("count", "all", "-1")) or text.isdecimal() else text

    def wrapper(self) -> list[str]:
        """The words that the engine is started through."""
        words = [
            word
            for word in self.spec.wrapper
            if word.rpartition("/")[2] not in _IDLE_WRAPPERS and not re.match(r"[A-Za-z_]\w*=", word)
        ]
        shell = [self.settled(None, word, self.settings) for word in self.shell]
        words = [] if words == [_NVIDIAS] else [*words, *shell]
        # These images are started through it, where nothing else is said.
        is_nvidias = bool(self.shell) and self.spec.family in (Family.NGC, Family.LMSYS)
        return [_NVIDIAS, *words] if is_nvidias and words[:1] != [_NVIDIAS] else words

    def mount(self, item: Item) -> tuple[str, str, bool] | None:
        """(source on the node, target, whether it is read-only); None where it is left out."""
        text = item.value or ""
        source, colon, rest = split_mount(text)
        target, _, mode = rest.partition(":")
        if not colon or not source:
            self.leave(item, f"the volume {shown(text)} is left out: it is made anew with each container")
            return None
        in_folder = from_folder(source)
        if in_folder is not None:
            source = posixpath.normpath(posixpath.join(self.folder, in_folder))
            if self.spec.kind is not SourceKind.INSPECT:
                self.warn(item, f"{shown(text)}: {source} must be there on the Spark")
        elif re.match(r"\w", source) and self.spec.kind is SourceKind.COMPOSE:
            source = dict(self.spec.volumes).get(source) or f"{self.project()}_{source}"
        home = re.sub(r"\A(?:\$HOME\b|\$\{HOME\})", "~", source)
        self.known(item, "mount", f"{home}:{target}")
        home, target = self.settled(item, home), self.settled(item, target)
        return home, target.rstrip("/") or "/", "ro" in mode.split(",")

    def published_port(self, options: dict[str, object]) -> Scalar | None:
        """The port that the engine has to listen on, as it is published on it; None: its own. Sets the address."""
        spec = self.spec
        if options.get("network") == "host" or str(options.get("network", "")).startswith("container:"):
            return None
        if spec.launcher is not Launcher.DOCKER and spec.kind is not SourceKind.COMPOSE:
            return None
        options.setdefault("network", "bridge")
        assert spec.engine is not None  # is_launchable
        listens = spec.flag("port")
        port = (self.known(listens, "--port") if listens is not None else "") or str(spec.engine.traits.port)
        for item in spec.options_of("publish"):
            address, outside, inside = _published(self.known(item, "publish"))
            if inside != port:
                self.leave(item, f"the port {shown(item.value)} is left out: the engine listens on {port}")
                continue
            if address not in ("", "0.0.0.0", "::"):  # noqa: S104 - what the file says
                options["publish_address"] = address
            if outside != port and (outside.isdecimal() or outside.startswith(OPEN)):
                self.leave(item, f"the engine listens on {outside} in its container too, not on {port}")
                return _scalar(outside)
            return None
        options["publish_address"] = "127.0.0.1"
        self.is_published = False
        self.leave(None, f"it publishes no port of the engine: sparktop publishes {port}, on 127.0.0.1 alone")
        return None


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


def _published(text: str) -> tuple[str, str, str]:
    """(address, port of the host, port of the container) of a `--publish`."""
    plain = text.partition("/")[0]
    rest, _, inside = plain.rpartition(":")
    address, _, outside = rest.rpartition(":")
    return address.strip("[]"), outside or inside, inside


def _as_it_runs(container: str) -> str:
    return f"sparktop launch {shlex.quote(container) if _NAME.fullmatch(container) else 'CONTAINER'} HOST"


def kind_of(spec: LaunchSpec) -> str:
    return "container" if spec.kind is SourceKind.INSPECT else spec.kind.value
