"""Read a recipe in sparkrun's format, versions 2 and 1.

Facts: docs/facts/engines.md section 5.1.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace

from sparktop.cmdline.engine_argv import flag_of, value_of
from sparktop.cmdline.engine_command import of_container
from sparktop.errors import nearest
from sparktop.masking import is_secret, is_secret_name
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import MOST_NODES, Dialect, Executor, Recipe, Scalar
from sparktop.recipe import parameters, patches
from sparktop.recipe.container_spec import CannotRender, NodeContext
from sparktop.recipe.operator_secrets import REFERENCE
from sparktop.recipe.problems import shown
from sparktop.recipe.read import extension
from sparktop.recipe.read.command_check import checked_argv
from sparktop.recipe.read.fields import Fields
from sparktop.recipe.read.images import build_instructions, prebuilt_image
from sparktop.recipe.read.mods import Finder, read_patches
from sparktop.recipe.read.unsupported import RUNTIMES as OTHER_RUNTIMES
from sparktop.recipe.read.unsupported import more_models, refuse_unsupported
from sparktop.recipe.render.host_config import options as host_options
from sparktop.recipe.render.more_models import speculation
from sparktop.recipe.template import parameters as parameters_in
from sparktop.recipe.template import text_of

TEXTS = (
    *("restart_policy", "gpus", "ipc", "shm_size", "network", "user", "memory_limit"),
    "publish_address",
    "gpu_access_mode",
)


LISTS = ("security_opt", "cap_add", "ulimit", "devices", "volumes", "labels")


FLAGS = ("auto_remove", "privileged")


_FIXED_OPTIONS = {
    "accelerator_vendor": ("nvidia",),
    "gpu_access_mode": ("gpus", "cdi"),
    "executor_type": ("docker",),
}


_UNCONTAINED_OPTIONS = ("working_dir", "log_dir", "log_file", "pid_dir", "pid_file", "env_file", "command_prefix")


def read_options(fields: Fields) -> dict[str, object]:
    """The `executor_config` options by sparkrun's names; those that aren't Docker's are refused."""
    values: dict[str, object] = {name: fields.flag(name) for name in FLAGS}
    values |= {name: fields.text(name, is_any=True).strip() for name in TEXTS}
    values |= {name: list(_text_list(fields, name)) for name in LISTS}
    words = fields.plain("entrypoint")
    values["entrypoint"] = words if isinstance(words, list) else fields.text("entrypoint", is_any=True).strip()
    options = {name: value for name, value in values.items() if name in fields}
    for name, same in _FIXED_OPTIONS.items():
        value = fields.text(name, same[0]).strip()
        if value not in same:
            fields.unsupported(name, f"`{shown(value)}` doesn't work on a Spark with Docker", "remove it")
    for name in _UNCONTAINED_OPTIONS:
        if fields.text(name):
            fields.unsupported(name, "is for engines without a container; sparktop starts containers", "remove it")
    if options.get("restart_policy") not in (None, "", "no") and options.get("auto_remove") is True:
        text = "`auto_remove` deletes the container when it exits, so Docker can't restart it"
        fields.add("restart_policy", text, remedy="set `auto_remove: false`, or remove the policy")
    for name, option in options.items():
        if parameters_in(str(option)):
            continue  # a setting: rendering it tells
        if not any(problem.key == fields.dotted(name) for problem in fields.sheet.problems):
            _check_option(fields, name, option)
    fields.finish()
    return options


def _options_on_top(fields: Fields) -> dict[str, object]:
    """Docker's options at the top of the recipe, where sparkrun ignores them: nobody means them otherwise."""
    options: dict[str, object] = {}
    for name in set(LISTS) - {"labels"}:
        if name in fields:
            options[name] = list(_text_list(fields, name))
            fields.note(name, f"read as `executor_config.{name}`; sparkrun ignores it here")
            _check_option(fields, name, options[name])
    return options


def _check_option(fields: Fields, name: str, value: object) -> None:
    """Report at its line what a launch would refuse of this option."""
    try:
        host_options({name: value}, NodeContext(node="spark1", home="/home/you"), nodes=1)
    except CannotRender as error:
        fields.refused(name, error)


def _text_list(fields: Fields, name: str) -> tuple[str, ...]:
    """A list of texts; a mapping becomes "key=value" items, as labels and limits are also written."""
    value = fields.plain(name)
    if isinstance(value, dict) and all(not isinstance(item, list | dict) for item in value.values()):
        return tuple(f"{key}={entry}" for key, entry in value.items())
    if isinstance(value, str):
        return (value,)
    return fields.texts(name)


RUNTIMES = {
    "vllm": EngineKind.VLLM,
    "vllm-distributed": EngineKind.VLLM,
    "vllm-ray": EngineKind.VLLM,
    "eugr-vllm": EngineKind.VLLM,
    "sglang": EngineKind.SGLANG,
    "llama-cpp": EngineKind.LLAMA_CPP,
}


_MODEL = re.compile(r"(?:[\w.-]+/)?[\w.-]+(?::[\w.-]+)?\Z|/[^\0]+\Z|[~.]{1,2}/[^\0]+\Z")


_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*(?:@sha256:[0-9a-f]{64})?\Z")


_SERVED = re.compile(r"\b(?:vllm\s+serve|--model(?:-path)?[=\s])\s*([\w.-]+/[\w.-]+)(?=\s|\Z)")


_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")


_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+\Z")


_SHARE_IN_GIB = re.compile(r"--gpu-memory-utilization-gb(?=[\s=]+\{gpu_memory_utilization\})")
"""The flag that eugr's mod gpu-mem-util-gb adds: with it the parameter is GiB. sparktop computes a fraction."""
SPARK_GIB = 121.7
"""docs/facts/gb10.md section 2."""


_LAUNCH = re.compile(r"(?<![${])\{(config|launch)\.([A-Za-z_][A-Za-z0-9_]*)\}")


_LAUNCHERS = ("head_host", "head_ip", "base_url", "cluster_id", "cache_dir")
"""What sparkrun fills into hooks besides the recipe's parameters, its port and the container's name."""


_PARALLEL = ("tensor_parallel", "pipeline_parallel", "data_parallel")


_TOP_LEVEL_KEYS = ("model", "container", "model_revision")
"""Keys that may not stand in `defaults`: a launch would budget for one model and serve another."""


_EXTENSION_KEYS = {name: f"runtime_config.sparktop.{name}" for name in extension.KEYS} | {
    "sparktop": "runtime_config.sparktop"
}


_DEFAULTS_KEYS = frozenset(
    (
        "port", "host", "tensor_parallel", "pipeline_parallel", "data_parallel", "gpu_memory_utilization",
        "mem_fraction_static", "max_model_len", "context_length", "max_num_seqs", "max_num_batched_tokens",
        "kv_cache_dtype", "load_format", "served_model_name", "attention_backend", "tool_call_parser",
        "reasoning_parser", "quantization", "trust_remote_code", "enforce_eager",
    )
)  # fmt: skip


def read_recipe(fields: Fields, name: str, path: str, find_mod: Finder) -> Recipe:
    """Read as much of the recipe as possible; problems go to the sheet."""
    dialect = _dialect(fields)
    refuse_unsupported(fields)
    written = fields.text("command").strip("\n")
    command = _SHARE_IN_GIB.sub("--gpu-memory-utilization", written)
    model = _model(fields, command)
    container = _required_name(fields, "container", _IMAGE, "an image name is registry/name:tag")
    config = fields.section("runtime_config")
    build_args = (*fields.texts("build_args"), *config.texts("build_args"))  # version 1's, and as sparkrun keeps them
    own = config.section("sparktop")
    defaults = _defaults(fields, has_share_in_gib=command != written)
    engine, runtime = _engine(fields, command)
    if engine is EngineKind.LLAMA_CPP and (not command or "ctx_size" in parameters_in(command)):
        defaults = _with_ctx_size(defaults, fields.section("defaults"))
    is_eugrs = dialect is Dialect.EUGR or runtime == "eugr-vllm"
    least, most = _nodes(fields, defaults, engine)
    environment, per_node = _environment(fields.section("env"))
    risks = list(own.texts("risks"))
    pulls = prebuilt_image(fields, container, build_args)
    is_built = dialect is Dialect.EUGR or bool(build_args) or fields.text("builder") == "eugr"
    if is_built and not pulls and (note := build_instructions(fields, container, build_args)):
        risks.append(note)
    metadata = _metadata(fields)
    description = fields.text("description", is_any=True).strip() or str(metadata.get("description", "")).strip()
    declared = fields.text("name", is_any=True).strip()
    declared_executor = own.choice("executor", extension.EXECUTORS)
    recipe = Recipe(
        id=name,
        path=path,
        dialect=dialect,
        engine=engine,
        model=model,
        container=container,
        pulls=pulls,
        patches=read_patches(fields, config, find_mod),
        post_exec=_post_exec(fields),
        title=own.text("title", is_any=True).strip()
        or (declared if dialect is Dialect.EUGR else "")
        or _first_sentence(description),
        description=description,
        model_revision=fields.word("model_revision", is_any=True),
        executor=_executor(declared_executor, runtime, {} if is_eugrs else defaults, most),
        min_nodes=least,
        max_nodes=most,
        defaults=defaults,
        environment=environment,
        node_environment=per_node | extension.read_texts_by_name(own.section("node_environment")),
        command=command,
        options=_options_on_top(fields) | read_options(fields.section("executor_config")),
        mmproj=config.text("mmproj", is_any=True) or fields.text("mmproj", is_any=True),
        served_name=own.word("served_name"),
        has_model_inside=own.flag("model_inside"),
        keeps_compiled=_keeps_compiled(fields),
        need=extension.read_need(own.section("need"), metadata),
        requires=extension.read_requires(own.section("requires")),
        proof=extension.read_proof(own, fields.section("readiness")),
        expected=extension.read_expected(own.section("expected")),
        more_models=tuple(dict.fromkeys((*extension.read_models(own), *more_models(fields, model)))),
        muted=tuple(filter(None, map(extension.read_muted, own.sections("mute")))),
        provenance=tuple(filter(None, map(extension.read_provenance, own.sections("provenance")))),
        risks=tuple(risks),
        metadata=metadata,
        settings=extension.read_texts_by_name(own.section("settings")),
    )
    extension.finish(own)
    config.node("dashboard")
    config.finish(meant="sparktop's own keys go under runtime_config.sparktop")
    meant = {key: f"defaults.{key}" for key in _DEFAULTS_KEYS} | _EXTENSION_KEYS
    meant |= {key: f"executor_config.{key}" for key in (*TEXTS, *FLAGS, "ulimit")} | {"environment": "env"}
    fields.finish(elsewhere=meant, may_have_others=True)
    return _with_command(recipe, checked_argv(fields, recipe), is_eugrs=is_eugrs)


def _with_command(recipe: Recipe, argv: tuple[str, ...], *, is_eugrs: bool) -> Recipe:
    """The recipe with what its command says; spark-vllm-docker leaves a command's Ray out."""
    executor = recipe.executor
    if value_of(argv, "--distributed-executor-backend") == "ray" and recipe.max_nodes > 1 and not is_eugrs:
        executor = Executor.RAY
    draft, _ = speculation(argv)
    name = flag_of("served_model_name", recipe.engine)
    drafts = [draft] if _REPOSITORY.match(draft) and draft != recipe.model else []
    return replace(
        recipe,
        executor=executor,
        requires=replace(recipe.requires, ray=recipe.requires.ray or executor is Executor.RAY),
        served_name=recipe.served_name or value_of(argv, name, kind=recipe.engine) or "",
        more_models=tuple(dict.fromkeys((*recipe.more_models, *drafts))),
    )


def _dialect(fields: Fields) -> Dialect:
    older = fields.text("sparkrun_version", is_any=True).strip()
    version = fields.text("recipe_version", is_any=True).strip() or older or "2"
    if version in ("1", "1.0"):
        return Dialect.EUGR
    if version not in ("2", "2.0"):  # the community counts its revisions here, and sparkrun reads all of them alike
        note = f"`{shown(version)}` is no version of the format: sparktop reads it as version 2, as sparkrun does"
        fields.note("recipe_version", note)
    return Dialect.SPARKRUN


def _model(fields: Fields, command: str) -> str:
    """`model`, or the model that the command serves where it is missing, as version 1 allows."""
    if not fields.text("model") and (served := _SERVED.search(command)):
        return served[1]
    return _required_name(fields, "model", _MODEL, "a Hugging Face name is organisation/model")


def _required_name(fields: Fields, name: str, form: re.Pattern[str], remedy: str) -> str:
    value = fields.word(name)
    if not value:
        if not any(problem.key == name for problem in fields.sheet.problems):
            fields.missing(name, "missing", remedy)
        return ""
    if not form.match(re.sub(r"\{[A-Za-z_]\w*\}", "x", value)):
        fields.add(name, f"`{shown(value)}` is not a valid name", remedy=remedy)
    return value


def _engine(fields: Fields, command: str) -> tuple[EngineKind, str]:
    """(engine, runtime): by `runtime`, else by the program that the command starts, else vLLM: as sparkrun does."""
    runtime = fields.text("runtime").strip()
    started = of_container(command.split())
    begun = started.kind if started and started.kind.traits.starts else EngineKind.VLLM
    if not runtime:
        return begun, ""
    if runtime in RUNTIMES:
        return RUNTIMES[runtime], runtime
    if runtime in OTHER_RUNTIMES:
        text = f"sparktop doesn't launch {OTHER_RUNTIMES[runtime]}"
        remedy = "it launches vLLM, SGLang and llama.cpp; use `sparkrun run` for this recipe"
        fields.unsupported("runtime", text, remedy)
    else:
        text = f"sparktop doesn't know the runtime `{shown(runtime)}`"
        meant = nearest(runtime, RUNTIMES)
        fields.add("runtime", text, nearest=meant, remedy="" if meant else f"known: {', '.join(RUNTIMES)}")
    return begun, runtime


def _executor(declared: str, runtime: str, defaults: Mapping[str, Scalar], most: int) -> Executor:
    if most == 1:
        return Executor.ALONE
    if declared:
        return Executor(declared) if declared == "native" else Executor.RAY
    backend = str(defaults.get("distributed_executor_backend", "")).lower()
    return Executor.RAY if runtime == "vllm-ray" or backend == "ray" else Executor.NATIVE


def _nodes(fields: Fields, defaults: Mapping[str, Scalar], engine: EngineKind) -> tuple[int, int]:
    """(least, most) nodes; a recipe that needs more than sparktop launches its engine on is refused."""
    limit = MOST_NODES if engine.traits.rank_flags else 1
    least = fields.whole("min_nodes", least=1, most=10_000)
    most = fields.whole("max_nodes", least=1, most=10_000)
    mode = fields.choice("mode", ("auto", "solo", "cluster"))
    if mode == "solo":
        least, most = 1, 1
    is_solo, is_cluster = fields.flag("solo_only"), fields.flag("cluster_only")  # version 2 still takes both
    if is_solo and is_cluster:
        fields.add("cluster_only", "`solo_only` says the opposite", remedy="keep one")
    if is_solo:
        most = 1
    if is_cluster or mode == "cluster":
        least = max(least or 1, 2)
    low = least or 1
    if most is not None and most < low:
        fields.add("max_nodes", f"{most} is less than its minimum of {low}")
    needed = 1
    for name in _PARALLEL:
        value = defaults.get(name)
        needed *= value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 4096 else 1
    where = "min_nodes" if low >= needed else next(n for n in reversed(_PARALLEL) if int(defaults.get(n) or 1) > 1)
    if max(low, needed) > limit:
        text = f"it needs {max(low, needed)} Sparks, but sparktop launches {engine.traits.name} on {limit} at most"
        holder = fields if where == "min_nodes" else fields.section("defaults")
        holder.unsupported(where, text, "a smaller quantisation may fit on fewer")
    low = min(max(low, 1), limit)
    high = max(low, min(most, limit)) if most is not None else limit
    if most is not None and needed > most:
        text = (
            f"`tensor_parallel` and the like need {needed} Sparks, but the recipe allows at most {most}: sparktop "
            "sets each to 1"
        )
        fields.note("max_nodes" if "max_nodes" in fields else "solo_only", text)
    return low, high


def _defaults(fields: Fields, *, has_share_in_gib: bool) -> dict[str, Scalar]:
    section = fields.section("defaults")
    values: dict[str, Scalar] = {}
    for name in section:
        value = section.plain(name)
        if not _PARAMETER.match(name):
            section.add(name, "not a parameter name", remedy="use letters, digits and _")
        elif isinstance(value, dict | list):
            values[name] = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        elif isinstance(value, str) and "{{" in value:
            values[name] = value.replace("{{", "{").replace("}}", "}")
        elif value is not None:
            values[name] = value
        if name in _TOP_LEVEL_KEYS:
            section.add(name, "belongs at the top of the recipe", remedy=f"move it there as `{name}`")
        if has_share_in_gib and name == "gpu_memory_utilization" and isinstance(value, int | float):
            values[name] = math.floor(100 * value / SPARK_GIB) / 100
            note = f"sparktop makes {values[name]:g} of {value:g} GiB, the fraction of a Spark's {SPARK_GIB:g}"
            section.note(name, note)
        if name in values and (why := parameters.default_problem(name, text_of(values[name]))):
            section.add(name, why)
    return values


def _with_ctx_size(defaults: Mapping[str, Scalar], section: Fields) -> dict[str, Scalar]:
    """With the context under llama.cpp's name, which counts where both are set: as sparkrun does."""
    if {"max_model_len", "ctx_size"} <= defaults.keys():
        section.note("max_model_len", "has no effect: llama.cpp's `ctx_size` counts", "remove it")
        return {name: value for name, value in defaults.items() if name != "max_model_len"}
    return {"ctx_size" if name == "max_model_len" else name: value for name, value in defaults.items()}


def _environment(section: Fields) -> tuple[dict[str, str], dict[str, str]]:
    """(variables of every rank, variables that differ between ranks)."""
    everywhere: dict[str, str] = {}
    per_node: dict[str, str] = {}
    for name in section:
        value = section.plain(name)
        if not extension.VARIABLE.fullmatch(name):
            section.add(name, "not a variable name", remedy="use letters, digits and _")
        elif isinstance(value, dict | list):
            section.add(name, "must be a text", remedy="write a list or a mapping in quotes")
        elif value is None:
            if not any(problem.key == section.dotted(name) for problem in section.sheet.problems):
                section.add(name, "has no value", remedy='for an empty value write ""')
        else:
            if isinstance(value, bool):
                note = f"is passed as `{value}`, the way Python writes it"
                section.note(name, note, 'in quotes, "1" or "true" is passed unchanged')
            text = str(value)
            if is_secret(name, text) and "$" not in text and "{" not in text:
                note = "this is a secret, readable for everybody who has the file"
                remedy = f"write ${name} instead, and set it in your environment or a .env file"
                section.note(name, note, remedy)
            if (match := REFERENCE.fullmatch(text)) and match["default"] is None:
                text = f"${match['braced'] or match['plain']}"
            text = REFERENCE.sub(_default_unless_secret, text)
            translated = _translate_fields(section, name, text)
            if translated is not None:
                (per_node if "{node_rank}" in translated else everywhere)[name] = translated
    return everywhere, per_node


def _default_unless_secret(reference: re.Match[str]) -> str:
    """`${NAME:-default}` as its default, as only secrets are read from the operator's own environment."""
    default = reference["default"]
    return reference[0] if default is None or is_secret_name(reference["braced"]) else default


def _translate_fields(section: Fields, name: str, text: str) -> str | None:
    """sparkrun's {config.NAME} and {launch.NAME} as sparktop's parameters; None where only its launcher knows one."""
    translations = {name: f"{{{name}}}" for name in ("model_revision", "node_rank", "num_nodes")}
    translations["model_path"] = "{model}"
    for match in _LAUNCH.finditer(text):
        if match[1] == "launch" and match[2] not in translations:
            problem = f"only sparkrun's launcher knows `{{launch.{shown(match[2])}}}`"
            section.unsupported(name, problem, "write the value instead")
            return None
    return _LAUNCH.sub(lambda match: translations[match[2]] if match[1] == "launch" else f"{{{match[2]}}}", text)


def _post_exec(fields: Fields) -> tuple[str, ...]:
    commands = fields.texts("post_exec")
    for name in dict.fromkeys(name for command in commands for name in patches.parameters_in(command)):
        if name in _LAUNCHERS or name.startswith(("launch.", "config.")):
            text = f"only sparkrun's launcher knows `{{{name}}}`"
            fields.unsupported("post_exec", text, "it runs in the container: http://127.0.0.1:{port}/v1")
    return commands


def _keeps_compiled(fields: Fields) -> bool:
    """False where `runtime_cache` is switched off; where and how long it is kept is sparktop's own choice."""
    value = fields.plain("runtime_cache")
    return value.get("enabled") is not False if isinstance(value, dict) else value is not False


def _metadata(fields: Fields) -> dict[str, Scalar]:
    """Texts and numbers of `metadata`; lists (benchmarks, links) are left out."""
    section = fields.section("metadata")
    values = {name: section.plain(name) for name in section}
    return {name: value for name, value in values.items() if isinstance(value, str | int | float | bool)}


def _first_sentence(text: str) -> str:
    return shown(re.split(r"(?<=[.!?])\s|\n", text.strip())[0], 80) if text.strip() else ""
