"""Read sparktop's own keys of a recipe, under `runtime_config: sparktop:`."""

from __future__ import annotations

import re
from dataclasses import field
from dataclasses import fields as dataclass_fields

from sparktop.dataclass import dataclass
from sparktop.model.recipe import Expected, Muted, Need, Proof, Provenance, Requirement
from sparktop.recipe.models import is_path, is_repo
from sparktop.recipe.problems import ProblemKind, nearest, shown
from sparktop.recipe.read.fields import Fields

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
EXECUTORS = ("native", "ray")
KEYS = (
    "title", "executor", "served_name", "model_inside", "models", "node_environment", "need", "requires", "ready",
    "smoke_test", "expected", "mute", "provenance", "risks",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """The values of sparktop's own keys, with defaults for missing ones."""

    title: str = ""
    executor: str = ""
    served_name: str = ""
    has_model_inside: bool = False
    more_models: tuple[str, ...] = ()
    node_environment: dict[str, str] = field(default_factory=dict)
    need: Need = field(default_factory=Need)
    requires: Requirement = field(default_factory=Requirement)
    proof: Proof = field(default_factory=Proof)
    has_ready_limit: bool = False
    """Whether `proof.ready_limit_s` was set here."""
    expected: Expected = field(default_factory=Expected)
    muted: tuple[Muted, ...] = ()
    provenance: tuple[Provenance, ...] = ()
    risks: tuple[str, ...] = ()


def read_extension(fields: Fields) -> Extension:
    """Read the section; problems go to the sheet."""
    ready = fields.section("ready")
    ready_limit_s = ready.number("limit_s", least=10, most=86_400)
    ready.finish()
    extension = Extension(
        title=fields.text("title", is_any=True).strip(),
        executor=fields.choice("executor", EXECUTORS),
        served_name=fields.word("served_name"),
        has_model_inside=fields.flag("model_inside"),
        more_models=_models(fields),
        node_environment=_node_environment(fields.section("node_environment")),
        need=_need(fields.section("need")),
        requires=_requires(fields.section("requires")),
        proof=_proof(fields.section("smoke_test"), ready_limit_s),
        has_ready_limit=ready_limit_s is not None,
        expected=_expected(fields.section("expected")),
        muted=tuple(muted for section in fields.sections("mute") if (muted := _muted(section))),
        provenance=tuple(provenance for entry in fields.sections("provenance") if (provenance := _provenance(entry))),
        risks=fields.texts("risks"),
    )
    fields.finish(elsewhere=_misplaced_keys(fields))
    return extension


def _misplaced_keys(fields: Fields) -> dict[str, str]:
    """Keys of `need` that stand one level too high, misspelt or not, with the key to use instead."""
    meant = {name: nearest(name, (need_field.name for need_field in dataclass_fields(Need))) for name in fields}
    return {
        name: f"{fields.dotted('need')}.{nearest_key}"
        for name, nearest_key in meant.items()
        if nearest_key and not nearest(name, KEYS)
    }


def _models(fields: Fields) -> tuple[str, ...]:
    names = fields.texts("models")
    for name in names:
        if "{" not in name and not is_repo(name) and not is_path(name):
            fields.add(
                "models", f"`{shown(name)}` is not a model name", remedy="a Hugging Face name is organisation/model"
            )
    return names


def _node_environment(fields: Fields) -> dict[str, str]:
    values = {name: fields.text(name, is_any=True) for name in fields}
    for name in values:
        if not VARIABLE.fullmatch(name):
            fields.add(name, "not a variable name", remedy="use letters, digits and _")
    return values


def _need(fields: Fields) -> Need:
    names = ("weights_gib", "kv_bytes_per_token", "active_gib", "spike_gib", "reserve_gib")
    figures = {name: fields.number(name) for name in names}
    need = Need(**figures, share=fields.number("share", least=0.05, most=0.98))
    fields.finish()
    return need


def _requires(fields: Fields) -> Requirement:
    default = Requirement()
    equal_memory_gib = fields.number("equal_memory_gib")
    requires = Requirement(
        driver=fields.text("driver", is_any=True).strip(),
        ray=fields.flag("ray"),
        fastsafetensors=fields.flag("fastsafetensors"),
        linger=fields.flag("linger"),
        rdma=fields.flag("rdma", default.rdma),
        equal_memory_gib=default.equal_memory_gib if equal_memory_gib is None else equal_memory_gib,
    )
    if requires.driver and not requires.driver.replace(".", "").isdecimal():
        fields.add("driver", "must be a driver branch or version", remedy='for example "580"')
    fields.finish()
    return requires


def _proof(fields: Fields, ready_limit_s: float | None) -> Proof:
    default = Proof()
    proof = Proof(
        prompt=fields.text("prompt").strip() or default.prompt,
        max_tokens=fields.whole("max_tokens", least=1, most=100_000) or default.max_tokens,
        measure_tokens=fields.whole("measure_tokens", least=1, most=100_000) or default.measure_tokens,
        ready_limit_s=default.ready_limit_s if ready_limit_s is None else ready_limit_s,
        is_reasoning=fields.flag("reasoning"),
    )
    fields.finish()
    return proof


def _expected(fields: Fields) -> Expected:
    names = ("tokens_s", "tokens_s_most", "first_token_s", "load_s", "available_gib")
    figures = {name: fields.number(name) for name in names}
    expected = Expected(**figures, source=fields.text("source").strip())
    low, high = expected.tokens_s, expected.tokens_s_most
    if high is not None and (low is None or high < low):
        fields.add("tokens_s_most", "is the upper end of a range and needs `tokens_s`, the lower end")
    fields.finish()
    return expected


def _muted(fields: Fields) -> Muted | None:
    muted = Muted(rule=fields.word("rule"), reason=fields.text("reason").strip())
    fields.finish()
    if not muted.rule:
        fields.add("rule", "missing: name the lint rule", kind=ProblemKind.MISSING)
    if not muted.reason:
        fields.add("reason", "missing: say why you mute the rule", kind=ProblemKind.MISSING)
    return muted if muted.rule and muted.reason else None


def _provenance(fields: Fields) -> Provenance | None:
    provenance = Provenance(
        source=fields.text("source").strip(),
        date=fields.text("date", is_any=True).strip(),
        says=fields.text("says").strip(),
        resolved=fields.text("resolved").strip(),
    )
    fields.finish()
    if not provenance.source:
        fields.add("source", "missing: say where it comes from", kind=ProblemKind.MISSING)
        return None
    return provenance
