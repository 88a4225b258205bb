"""The parameters of a launch: the recipe's own, the operator's settings over them, and the names they go by.

Names are sparkrun's; the engines' own spellings mean the same, so that `--set context_length=65536` works on a recipe
that says max_model_len. A value set by the operator ends up as part of one word of an argv, and never as a flag.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from sparktop.cmdline.engine_argv import whole
from sparktop.cmdline.engine_flags import SECRET_FLAGS
from sparktop.dataclass import dataclass
from sparktop.errors import nearest
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Order, Recipe
from sparktop.recipe import template
from sparktop.recipe.container_spec import CannotRender
from sparktop.recipe.models import is_revision
from sparktop.recipe.settings import not_set

SAME: tuple[tuple[str, ...], ...] = (
    ("tensor_parallel", "tensor_parallel_size", "tp", "tp_size"),
    ("pipeline_parallel", "pipeline_parallel_size", "pp", "pp_size"),
    ("data_parallel", "data_parallel_size", "dp", "dp_size"),
    ("max_model_len", "context_length", "context", "ctx_size"),
    ("gpu_memory_utilization", "mem_fraction_static"),
    ("max_num_seqs", "max_running_requests"),
    ("chunked_prefill", "chunked_prefill_size"),
    ("served_model_name", "served_name"),
    ("container", "image"),
    ("model_revision", "revision"),
    ("name", "container_name"),
)
"""Names that mean the same parameter, sparkrun's name first."""
_SPELLINGS = frozenset(spelling for group in SAME for spelling in group)
SHARE = "gpu_memory_utilization"
NEEDS = ("need.weights_gib", "need.kv_bytes_per_token", "need.spike_gib")
"""What the launch needs of memory, where the operator knows better than the files, the recipe and what was measured."""
OWN = ("model", "container", "model_revision", "name", "master_port", "ray_port", *NEEDS)
"""Parameters that are no engine flag; "name" is the container's."""
_SECRET = frozenset(name.replace("-", "_") for name in SECRET_FLAGS)
_PORT = re.compile(r"[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5]")
_COUNT = re.compile(r"[1-9]\d{0,8}")
_COUNTS = ("tensor_parallel", "pipeline_parallel", "data_parallel", "max_num_seqs")
_FORMS: Mapping[str, tuple[re.Pattern[str], str]] = {
    **dict.fromkeys(("port", "master_port", "ray_port"), (_PORT, "a port from 1 to 65535")),
    **dict.fromkeys(_COUNTS, (_COUNT, "a whole number above 0")),
    **dict.fromkeys(NEEDS, (re.compile(r"\d{1,8}(?:\.\d{1,6})?"), "a number, 0 or more")),
    "max_model_len": (re.compile(r"[1-9]\d*(?:(?:\.\d+)?[kKmM])?|-1|auto"), "a number of tokens"),
    "ctx_size": (re.compile(r"[1-9]\d*(?:(?:\.\d+)?[kKmM])?|0"), "a number of tokens, or 0 for the model's own"),
}
"""What a parameter's value looks like, and how that is called; of a spelling that is one engine's, as that reads it."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x80-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9.-]+(?::\d{1,5})?/)?"  # a registry; without a dot or a port it is a name's first part
    r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?::[\w][\w.-]{0,127})?(?:@[a-z0-9]+:[0-9a-fA-F]{32,})?",
    re.ASCII,
)
"""[REGISTRY[:PORT]/]NAME[:TAG][@sha256:DIGEST]."""
MAX_CHARS = 8192
RAY_WORKERS = range(10002, 20000)
"""The ports Ray gives to its workers by default: its head doesn't start on one of them (Ray 2.52.1)."""


def main_name(name: str) -> str:
    """sparkrun's name of a parameter, whatever the spelling."""
    plain = name.strip().lstrip("-").replace("-", "_")
    return next((group[0] for group in SAME if plain in group), plain)


def get(values: Mapping[str, str], name: str) -> str | None:
    """A parameter of `values` by any of its names; None where it isn't set."""
    main = main_name(name)
    return next((value for own, value in values.items() if main_name(own) == main), None)


def named_in(recipe: Recipe) -> frozenset[str]:
    """The {parameters} that the recipe's command and variables refer to."""
    texts = (recipe.command, *recipe.environment.values(), *recipe.node_environment.values())
    return frozenset(name for text in texts for name in template.used(text, recipe.defaults))


def settable_names(recipe: Recipe) -> frozenset[str]:
    """Every name the operator may set, as this recipe or sparkrun spells it."""
    return frozenset((*recipe.defaults, *recipe.settings, *named_in(recipe), *OWN, *recipe.engine.traits.settable))


def can_be_set(engine: EngineKind, name: str, value: str) -> bool:
    """Whether every recipe of the engine accepts `--set name=value`."""
    main = main_name(name)
    if main in _SECRET or main not in (*OWN, *engine.traits.settable):
        return False
    return _unsafe(main, value) is None and _wrong(main, value) is None


def nearest_parameter(name: str, engine: EngineKind) -> str:
    """The parameter this name is probably a typo of; empty where it is a known name, or like none."""
    names = {*engine.traits.settable, *OWN, *_SPELLINGS}
    plain = name.lower().replace("-", "_")
    return "" if plain in names else nearest(plain, names, least=0.88)


def default_problem(name: str, value: str) -> str:
    """Why a recipe's default is invalid; empty where it is valid or names other parameters."""
    problem = None if template.parameters(value) else _wrong(name, value)
    return "" if problem is None else problem.text


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchValues:
    """The value of every parameter of a launch, by the recipe's own names: the operator's over the recipe's."""

    order: Order
    by_name: Mapping[str, str]
    """Where there is a problem, the best that is known."""
    set_names: frozenset[str]
    """Those that the operator, or sparktop, has set over the recipe's."""
    problem: CannotRender | None = None
    before: LaunchValues | None = None
    """Without what the operator sets over the recipe; None: nothing is, beside what the recipe leaves to the operator.
    """

    @property
    def model(self) -> str:
        """A repository, with a quant for llama.cpp, or a path on the nodes."""
        return self.by_name["model"]

    @property
    def image(self) -> str:
        return self.by_name["container"]

    @property
    def revision(self) -> str:
        """The model's; empty: its repository's main branch."""
        return self.get("model_revision") or ""

    def get(self, name: str) -> str | None:
        """A parameter by any of its names; None where it isn't set."""
        return get(self.by_name, name)

    def checked(self) -> dict[str, str]:
        """`by_name`, to be changed.

        Raises:
            CannotRender: an unknown name (with the nearest known one), or an invalid value.
        """
        if self.problem is not None:
            raise self.problem
        return dict(self.by_name)


def resolve(order: Order) -> LaunchValues:
    """The values that a launch runs with."""
    left_open = {name: value for name, value in order.values.items() if name in order.recipe.settings}
    before = None if left_open == order.values else _resolved(replace(order, values=left_open))
    return replace(_resolved(order), before=before)


def _resolved(order: Order) -> LaunchValues:
    recipe = order.recipe
    merged = {name: template.text_of(value) for name, value in template.known_values(recipe).items()}
    del merged["resolved_model_path"]
    names = settable_names(recipe)
    recipe_names = {*recipe.defaults, *recipe.settings, *named_in(recipe)}
    set_names: set[str] = set()
    problems: list[CannotRender | None] = [not_set(order)]
    for name, value in order.values.items():
        try:
            recipe_name = _recipe_name(name, names, recipe_names, recipe.engine)
        except CannotRender as problem:
            problems.append(problem)
            continue
        problems.append(_unsafe(name, value))
        if main_name(recipe_name) == "model" and value != recipe.model:
            _drop(merged, "model_revision")  # it is of the recipe's own model
        _drop(merged, recipe_name)
        merged[recipe_name] = value
        set_names.add(recipe_name)
    if recipe.engine.traits.file_flag:  # llama.cpp reads 64k as 64
        for name in [name for name, value in merged.items() if main_name(name) == "max_model_len" and whole(value)]:
            merged[name] = str(whole(merged[name]))
    filled = dict(merged)
    for name, value in [(name, value) for name, value in merged.items() if name not in set_names]:
        try:
            filled[name] = template.fill(value, merged) if template.parameters(value) else value
        except CannotRender as problem:
            problems.append(problem)
    problems += [_wrong(name, value) for name, value in filled.items()]
    first = next(filter(None, problems), None)
    return LaunchValues(order=order, by_name=filled, set_names=frozenset(set_names & filled.keys()), problem=first)


def _drop(values: dict[str, str], name: str) -> None:
    """Remove a parameter under any of its names."""
    for same in [key for key in values if main_name(key) == main_name(name)]:
        del values[same]


def _recipe_name(name: str, names: Iterable[str], recipe_names: Iterable[str], engine: EngineKind) -> str:
    """The name that the recipe has for what the operator calls `name`."""
    plain = name.strip().lstrip("-").replace("-", "_")
    main = main_name(plain)
    if main in _SECRET or plain in _SECRET:
        raise CannotRender(
            f"{plain} is a secret, and parameters are put on a command line that every user of the machine can read",
            "set VLLM_API_KEY or LLAMA_API_KEY for the engine, HF_TOKEN for the hub, in the environment or a .env file",
        )
    for own in (plain, main, *(spelling for group in SAME if main in group for spelling in group)):
        if own in recipe_names:
            return own
    if main in names or plain in names:
        return main if main in names else plain
    if why := engine.traits.lacks.get(main):
        raise CannotRender(f"{engine.traits.name} has no parameter {plain!r}: {why}", "leave it out")
    near = nearest(plain, {*names, *_SPELLINGS}, least=0.5)
    hint = f": did you mean {near}?" if near else ""
    raise CannotRender(
        f"the recipe has no parameter {plain[:60]!r}{hint}",
        f"its parameters: {', '.join(sorted(recipe_names)) or 'none'}",
    )


def _unsafe(name: str, value: str) -> CannotRender | None:
    """Why an operator's value could become a flag, or no argument can hold it."""
    if _CONTROL.search(value) or len(value) > MAX_CHARS:
        return CannotRender(f"has control characters, or is longer than {MAX_CHARS} characters", key=name)
    if main_name(name) == "name" and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", value):
        return CannotRender(
            f"is {value[:60]!r}: a container name has only letters, digits and _ . -, and at most 63 characters",
            key=name,
        )
    if value.startswith("-") and not re.fullmatch(r"-\d+(?:\.\d+)?", value):
        return CannotRender(
            f"is {value[:40]!r}: a value that begins with a dash would be read as a flag",
            "set a flag by its name, for example: --set enforce_eager=true",
            key=name,
        )
    return None


def _wrong(name: str, value: str) -> CannotRender | None:
    """Why its parameter can't have this value."""
    main = main_name(name)
    if main in ("model", "container") and (not value or value.startswith("-") or re.search(r"\s", value)):
        return CannotRender(f"is {value[:60]!r}, which is not a name", key=name)
    if main == "container" and not _IMAGE.fullmatch(value):
        return CannotRender(f"is {value[:60]!r}: an image name is [registry/]name[:tag], in lower case", key=name)
    if main == "model_revision" and value and not is_revision(value):
        return CannotRender(f"is {value[:60]!r}, which is not a branch, tag or commit", key=name)
    form = _FORMS.get(name) or _FORMS.get(main)
    if form and not form[0].fullmatch(value):
        return CannotRender(f"is {value[:20]!r}: it must be {form[1]}", key=name)
    if main == "ray_port" and int(value) in RAY_WORKERS:
        return CannotRender(
            f"is {value}: Ray uses 10002 to 19999 for its workers",
            "--set ray_port=6379",
            key="ray_port",
            is_settable=True,
        )
    if main == SHARE and value.lower() != "auto" and not _is_share(value):
        return CannotRender(f"is {value[:20]!r}: it must be a fraction of the memory, above 0 and at most 1", key=name)
    return None


def _is_share(text: str) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return math.isfinite(number) and 0 < number <= 1
