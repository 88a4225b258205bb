"""Version 2, sparkrun's: a recipe's mapping into a `Recipe`, or problems.

Facts: facts/engines.md section 5.2, and sparkrun 0.4.2, which takes version 1 through the same keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Dialect, Executor, Need, Proof, Recipe, Scalar
from sparktop.recipe import extension as ours
from sparktop.recipe import parameters
from sparktop.recipe.commandcheck import Commanded, check_command
from sparktop.recipe.containeroptions import read_options
from sparktop.recipe.eugr import image_note, nodes_of
from sparktop.recipe.fields import Fields, Plain
from sparktop.recipe.problems import ProblemKind, nearest, shown
from sparktop.recipe.secretnames import is_secret
from sparktop.recipe.template import text_of
from sparktop.recipe.unsupported import RUNTIMES as OTHER_RUNTIMES
from sparktop.recipe.unsupported import more_models, refuse_unsupported

MOST_NODES = 2
RUNTIMES = {
    "vllm": EngineKind.VLLM,
    "vllm-distributed": EngineKind.VLLM,
    "vllm-ray": EngineKind.VLLM,
    "eugr-vllm": EngineKind.VLLM,
    "sglang": EngineKind.SGLANG,
}
_RAY = ("vllm-ray", "eugr-vllm")
_MODEL = re.compile(r"(?:[\w.-]+/)?[\w.-]+(?::[\w.-]+)?\Z|/[^\0]+\Z|[~.]{1,2}/[^\0]+\Z")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*(?:@sha256:[0-9a-f]{64})?\Z")
_SERVED = re.compile(r"\b(?:vllm\s+serve|--model(?:-path)?[=\s])\s*([\w.-]+/[\w.-]+)(?=\s|\Z)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
_WHOLE_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))\Z")
_LAUNCH = re.compile(r"(?<![${])\{(config|launch)\.([A-Za-z_][A-Za-z0-9_]*)\}")
_PARALLEL = ("tensor_parallel", "pipeline_parallel", "data_parallel")
_AT_TOP = ("model", "container", "model_revision")
"""No parameters of `defaults`: a launch would weigh one model and serve another."""
_OURS_AT_TOP = {name: f"runtime_config.sparktop.{name}" for name in ours.KEYS} | {"sparktop": "runtime_config.sparktop"}
_LIKE_DEFAULTS = frozenset(
    (
        "port", "host", "tensor_parallel", "pipeline_parallel", "data_parallel", "gpu_memory_utilization",
        "mem_fraction_static", "max_model_len", "context_length", "max_num_seqs", "max_num_batched_tokens",
        "kv_cache_dtype", "load_format", "served_model_name", "attention_backend", "tool_call_parser",
        "reasoning_parser", "quantization", "trust_remote_code", "enforce_eager",
    )
)  # fmt: skip


def read_recipe(fields: Fields, name: str, path: str) -> Recipe:
    """The recipe, as far as it can be read; what is wrong with it goes to the sheet."""
    dialect = _dialect(fields)
    refuse_unsupported(fields)
    command = fields.text("command").strip("\n")
    model = _model(fields, command)
    container = _named(fields, "container", _IMAGE, "an image is named registry/name:tag")
    config = fields.section("runtime_config")
    build_args = _build_args(fields, config)
    extension = ours.read_extension(config.section("sparktop") if config is not None else None)
    defaults = _defaults(fields)
    engine, runtime = _engine(fields, command)
    least, most = _nodes(fields, defaults, command)
    environment, per_node = _environment(fields.section("env"))
    risks = list(extension.risks)
    if (dialect is Dialect.EUGR or build_args) and (note := image_note(fields, container, build_args)):
        risks.append(note)
    metadata = _metadata(fields)
    description = fields.text("description", is_any=True).strip() or str(metadata.get("description", "")).strip()
    declared = fields.text("name", is_any=True).strip()
    recipe = Recipe(
        id=name,
        path=path,
        dialect=dialect,
        engine=engine,
        model=model,
        container=container,
        title=extension.title or (declared if dialect is Dialect.EUGR else "") or _first_sentence(description),
        description=description,
        model_revision=fields.word("model_revision", is_any=True),
        executor=_executor(extension.executor, runtime, defaults, command, most),
        min_nodes=least,
        max_nodes=most,
        defaults=defaults,
        environment=environment,
        node_environment=per_node | extension.node_environment,
        command=command,
        options=read_options(fields.section("executor_config")),
        served_name=extension.served_name,
        need=_need(extension.need, metadata),
        requires=extension.requires,
        proof=_proof(fields.section("readiness"), extension.proof, ours_wins=extension.has_ready_limit),
        expected=extension.expected,
        more_models=tuple(dict.fromkeys((*extension.more_models, *more_models(fields, model)))),
        muted=extension.muted,
        provenance=extension.provenance,
        risks=tuple(risks),
        metadata=metadata,
    )
    if config is not None:
        config.node("dashboard")
        config.finish(meant="sparktop's own keys stand under runtime_config.sparktop")
    meant = {key: f"defaults.{key}" for key in _LIKE_DEFAULTS} | _OURS_AT_TOP
    fields.finish(elsewhere=meant, meant="a parameter of the engine's stands under `defaults`")
    return _checked(fields, recipe)


def _checked(fields: Fields, recipe: Recipe) -> Recipe:
    """The recipe, its command looked at too, and what the command says of it."""
    said: Commanded = check_command(fields, recipe)
    executor, requires = recipe.executor, recipe.requires
    if said.is_ray and recipe.max_nodes > 1 and executor is not Executor.RAY:
        executor = Executor.RAY
    if executor is Executor.RAY and not requires.ray:
        requires = replace(requires, ray=True)
    drafts = [each for each in said.drafts if each != recipe.model]
    return replace(
        recipe,
        executor=executor,
        requires=requires,
        served_name=recipe.served_name or said.served_name,
        more_models=tuple(dict.fromkeys((*recipe.more_models, *drafts))),
    )


def _dialect(fields: Fields) -> Dialect:
    older = fields.text("sparkrun_version", is_any=True).strip()
    version = fields.text("recipe_version", is_any=True).strip() or older or "2"
    if version in ("1", "1.0"):
        return Dialect.EUGR
    if version not in ("2", "2.0"):
        text = f"`{shown(version)}` is a version that isn't known here"
        fields.add("recipe_version", text, remedy='known are "2" (sparkrun) and "1" (spark-vllm-docker)')
    return Dialect.SPARKRUN


def _model(fields: Fields, command: str) -> str:
    """`model`, or what the command serves where it is left out, as version 1 allows."""
    if not fields.text("model") and (served := _SERVED.search(command)):
        return served[1]
    return _named(fields, "model", _MODEL, "Hugging Face's names are organisation/model")


def _named(fields: Fields, name: str, form: re.Pattern[str], remedy: str) -> str:
    value = fields.word(name)
    if not value:
        if not any(problem.key == name for problem in fields.sheet.problems):
            fields.add(name, "missing", kind=ProblemKind.MISSING, remedy=remedy)
        return ""
    if not form.match(value):
        fields.add(name, f"`{shown(value)}` can't be one", remedy=remedy)
    return value


def _engine(fields: Fields, command: str) -> tuple[EngineKind, str]:
    """By `runtime`, else by how the command begins, else vLLM: as sparkrun does."""
    runtime = fields.text("runtime").strip()
    if not runtime:
        runtime = "sglang" if re.match(r"\s*(?:exec\s+)?(?:sglang\s|python3?\s+-m\s+sglang)", command) else "vllm"
    if runtime in RUNTIMES:
        return RUNTIMES[runtime], runtime
    if runtime in OTHER_RUNTIMES:
        text = f"{OTHER_RUNTIMES[runtime]} is an engine that sparktop doesn't launch"
        remedy = "sparktop launches vLLM and SGLang; `sparkrun run` launches this one"
        fields.add("runtime", text, kind=ProblemKind.UNSUPPORTED, remedy=remedy)
    else:
        text = f"`{shown(runtime)}` is no runtime that is known"
        meant = nearest(runtime, RUNTIMES)
        fields.add("runtime", text, nearest=meant, remedy="" if meant else f"known: {', '.join(RUNTIMES)}")
    return EngineKind.VLLM, runtime


def _executor(said: str, runtime: str, defaults: Mapping[str, Scalar], command: str, most: int) -> Executor:
    if most == 1:
        return Executor.ALONE
    if said:
        return Executor(said) if said == "native" else Executor.RAY
    backend = str(defaults.get("distributed_executor_backend", "")).lower()
    return Executor.RAY if runtime in _RAY or backend == "ray" else Executor.NATIVE


def _nodes(fields: Fields, defaults: Mapping[str, Scalar], command: str) -> tuple[int, int]:
    """From how many nodes to how many; more than two at the least is refused."""
    least = fields.whole("min_nodes", least=1, most=10_000)
    most = fields.whole("max_nodes", least=1, most=10_000)
    mode = fields.choice("mode", ("auto", "solo", "cluster"))
    if mode == "solo":
        least, most = 1, 1
    least, most = nodes_of(fields, least, most)
    if mode == "cluster":
        least = max(least or 1, 2)
    low = least or 1
    if most is not None and most < low:
        fields.add("max_nodes", f"{most} is less than the {low} that it takes at the least")
    needed = 1
    for name in _PARALLEL:
        value = defaults.get(name)
        needed *= value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 4096 else 1
    where = "min_nodes" if low >= needed else next(n for n in reversed(_PARALLEL) if int(defaults.get(n) or 1) > 1)
    if max(low, needed) > MOST_NODES:
        text = f"it takes {max(low, needed)} Sparks, and sparktop launches on one or two"
        place = fields if where == "min_nodes" else fields.section("defaults") or fields
        place.add(where, text, kind=ProblemKind.UNSUPPORTED, remedy="a smaller quantisation may do on two")
    low = min(max(low, 1), MOST_NODES)
    high = max(low, min(most, MOST_NODES)) if most is not None else MOST_NODES
    if most is not None and needed > most:
        text = (
            f"`tensor_parallel` and the like come to {needed}, and it may run on {most} at the most: each is taken as 1"
        )
        fields.add("max_nodes" if "max_nodes" in fields else "solo_only", text, kind=ProblemKind.NOTE)
    return low, high


def _defaults(fields: Fields) -> dict[str, Scalar]:
    section = fields.section("defaults")
    values: dict[str, Scalar] = {}
    for name in section or ():
        value: Plain = section.plain(name) if section is not None else None
        if section is not None and not _PARAMETER.match(name):
            section.add(name, "no name for a parameter", remedy="letters, digits and _")
        elif isinstance(value, dict | list):
            values[name] = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        elif isinstance(value, str) and "{{" in value:
            values[name] = value.replace("{{", "{").replace("}}", "}")
        elif value is not None:
            values[name] = value
        if section is not None and name in _AT_TOP:
            section.add(name, "stands at the recipe's top", remedy=f"take it out, and name it there as `{name}`")
        if section is not None and name in values and (why := parameters.why_not(name, text_of(values[name]))):
            section.add(name, why)
    return values


def _environment(section: Fields | None) -> tuple[dict[str, str], dict[str, str]]:
    """Of every rank, and what differs from rank to rank."""
    everywhere: dict[str, str] = {}
    per_node: dict[str, str] = {}
    for name in section or ():
        value = section.plain(name) if section is not None else None
        if section is None:
            break
        if not _VARIABLE.match(name):
            section.add(name, "no name for a variable", remedy="letters, digits and _")
        elif isinstance(value, dict | list):
            section.add(name, "wants a text", remedy="write a list or a mapping in quotes")
        elif value is None:
            if section.node(name) is not None and not any(
                p.key == section.dotted(name) for p in section.sheet.problems
            ):
                section.add(name, "has no value", remedy='"" is an empty one')
        else:
            if isinstance(value, bool):
                note = f"is handed on as `{value}`, as Python writes it"
                section.add(name, note, kind=ProblemKind.NOTE, remedy='"1" or "true" in quotes stays as it is')
            text = str(value)
            if is_secret(name, text) and "$" not in text and "{" not in text:
                note = "a secret stands here, for everybody who reads the file"
                mend = f"write ${name} in its place, and set that in your environment or a .env file"
                section.add(name, note, kind=ProblemKind.NOTE, remedy=mend)
            if match := _WHOLE_VARIABLE.match(text):
                text = f"${match[1] or match[2]}"
            made = _launch_fields(section, name, text)
            if made is not None:
                (per_node if "{node_rank}" in made else everywhere)[name] = made
    return everywhere, per_node


def _launch_fields(section: Fields, name: str, text: str) -> str | None:
    """sparkrun's {config.NAME} and {launch.NAME} as our parameters; None where its launcher alone knows one."""
    known = {"model_path": "{model}", "model_revision": "{model_revision}", "node_rank": "{node_rank}"}
    known["num_nodes"] = "{num_nodes}"
    for match in _LAUNCH.finditer(text):
        if match[1] == "launch" and match[2] not in known:
            what = f"`{{launch.{shown(match[2])}}}` is known to sparkrun's launcher only"
            section.add(name, what, kind=ProblemKind.UNSUPPORTED, remedy="write its value out")
            return None
    return _LAUNCH.sub(lambda match: known[match[2]] if match[1] == "launch" else f"{{{match[2]}}}", text)


def _build_args(fields: Fields, config: Fields | None) -> tuple[str, ...]:
    """`build_args` of version 1, and `runtime_config.build_args`, where sparkrun keeps them."""
    found = fields.texts("build_args")
    if config is not None:
        found += config.texts("build_args")
        if config.texts("mods"):
            text = "patches an image while it starts; sparktop starts an image as it is"
            config.add("mods", text, kind=ProblemKind.UNSUPPORTED)
        config.node("mmproj")
    return found


def _metadata(fields: Fields) -> dict[str, Scalar]:
    """What is said of the model, texts and numbers; lists (benchmarks, links) are left out."""
    section = fields.section("metadata")
    found = {name: section.plain(name) for name in section} if section is not None else {}
    return {name: value for name, value in found.items() if isinstance(value, str | int | float | bool)}


def _need(need: Need, metadata: Mapping[str, Scalar]) -> Need:
    """Weights as sparkrun's metadata pins them, where our own section doesn't say."""
    pinned = metadata.get("model_vram")
    if need.weights_gib is None and isinstance(pinned, int | float) and not isinstance(pinned, bool) and pinned > 0:
        return replace(need, weights_gib=float(pinned))
    return need


def _proof(section: Fields | None, proof: Proof, *, ours_wins: bool) -> Proof:
    """sparkrun's `readiness`: how long to wait, and what to ask first."""
    if section is None:
        return proof
    port_s = section.number("port_timeout_s", least=1, most=86_400)
    health_s = section.number("health_timeout_s", least=1, most=86_400)
    section.number("inference_timeout_s", least=1, most=86_400)
    section.text("inference_style")
    for name in ("inference_timeout_s", "inference_style"):
        if name in section:
            section.add(name, "changes nothing: the first request is a chat, and watched", kind=ProblemKind.NOTE)
    if not section.flag("inference", True):
        note = "changes nothing: every launch is proven by a first request"
        section.add("inference", note, kind=ProblemKind.NOTE)
    prompt = section.text("inference_prompt").strip()
    section.finish()
    usual = Proof()
    if (port_s or health_s) and not ours_wins:
        proof = replace(proof, ready_limit_s=max((port_s or 0) + (health_s or 0), 60.0))
    return replace(proof, prompt=prompt) if prompt and proof.prompt == usual.prompt else proof


def _first_sentence(text: str) -> str:
    return shown(re.split(r"(?<=[.!?])\s|\n", text.strip())[0], 80) if text.strip() else ""
