"""What sparktop adds to sparkrun's format, under `runtime_config: sparktop:`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields

from sparktop.model.recipe import Expected, Muted, Need, Proof, Provenance, Requirement
from sparktop.recipe.fields import Fields
from sparktop.recipe.models import is_path, is_repo
from sparktop.recipe.problems import ProblemKind, nearest, shown

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
EXECUTORS = ("native", "ray")
KEYS = (
    "title", "executor", "served_name", "models", "node_environment", "need", "requires", "ready", "smoke_test",
    "expected", "mute", "provenance", "risks",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """All of it; what isn't there is what it would be without."""

    title: str = ""
    executor: str = ""
    served_name: str = ""
    more_models: tuple[str, ...] = ()
    node_environment: dict[str, str] = field(default_factory=dict)
    need: Need = field(default_factory=Need)
    requires: Requirement = field(default_factory=Requirement)
    proof: Proof = field(default_factory=Proof)
    has_ready_limit: bool = False
    """Whether `proof` has its `ready.limit_s` from here."""
    expected: Expected = field(default_factory=Expected)
    muted: tuple[Muted, ...] = ()
    provenance: tuple[Provenance, ...] = ()
    risks: tuple[str, ...] = ()


def read_extension(fields: Fields | None) -> Extension:
    """The section's keys; problems go to the sheet."""
    if fields is None:
        return Extension()
    ready_limit_s = _ready(fields.section("ready"))
    extension = Extension(
        title=fields.text("title", is_any=True).strip(),
        executor=fields.choice("executor", EXECUTORS),
        served_name=fields.word("served_name"),
        more_models=_models(fields),
        node_environment=_node_environment(fields.section("node_environment")),
        need=_need(fields.section("need")),
        requires=_requires(fields.section("requires")),
        proof=_proof(fields.section("smoke_test"), ready_limit_s),
        has_ready_limit=ready_limit_s is not None,
        expected=_expected(fields.section("expected")),
        muted=tuple(muted for each in fields.sections("mute") if (muted := _muted(each))),
        provenance=tuple(known for each in fields.sections("provenance") if (known := _provenance(each))),
        risks=fields.texts("risks"),
    )
    fields.finish(elsewhere=_below(fields))
    return extension


def _below(fields: Fields) -> dict[str, str]:
    """Where a key belongs that stands one level too high, misspelt or not."""
    meant = {name: nearest(name, (one.name for one in dataclass_fields(Need))) for name in fields}
    return {name: f"{fields.dotted('need')}.{near}" for name, near in meant.items() if near and not nearest(name, KEYS)}


def _ready(fields: Fields | None) -> float | None:
    if fields is None:
        return None
    limit_s = fields.number("limit_s", least=10, most=86_400)
    fields.finish()
    return limit_s


def _models(fields: Fields) -> tuple[str, ...]:
    names = fields.texts("models")
    for name in names:
        if "{" not in name and not is_repo(name) and not is_path(name):
            fields.add("models", f"`{shown(name)}` can't be one", remedy="Hugging Face's names are organisation/model")
    return names


def _node_environment(fields: Fields | None) -> dict[str, str]:
    values = {name: fields.text(name, is_any=True) for name in fields} if fields is not None else {}
    for name in values:
        if fields is not None and not VARIABLE.fullmatch(name):
            fields.add(name, "no name for a variable", remedy="letters, digits and _")
    return values


def _need(fields: Fields | None) -> Need:
    if fields is None:
        return Need()
    need = Need(
        weights_gib=fields.number("weights_gib"),
        kv_bytes_per_token=fields.number("kv_bytes_per_token"),
        active_gib=fields.number("active_gib"),
        spike_gib=fields.number("spike_gib"),
        reserve_gib=fields.number("reserve_gib"),
        share=fields.number("share", least=0.05, most=0.98),
    )
    fields.finish()
    return need


def _requires(fields: Fields | None) -> Requirement:
    if fields is None:
        return Requirement()
    usual = Requirement()
    apart = fields.number("equal_memory_gib")
    requires = Requirement(
        driver=fields.text("driver", is_any=True).strip(),
        ray=fields.flag("ray"),
        fastsafetensors=fields.flag("fastsafetensors"),
        linger=fields.flag("linger"),
        rdma=fields.flag("rdma", usual.rdma),
        equal_memory_gib=usual.equal_memory_gib if apart is None else apart,
    )
    if requires.driver and not requires.driver.replace(".", "").isdecimal():
        fields.add("driver", "wants a branch or a version of the driver", remedy='for instance "580"')
    fields.finish()
    return requires


def _proof(fields: Fields | None, ready_limit_s: float | None) -> Proof:
    usual = Proof()
    limit_s = usual.ready_limit_s if ready_limit_s is None else ready_limit_s
    if fields is None:
        return Proof(ready_limit_s=limit_s)
    proof = Proof(
        prompt=fields.text("prompt").strip() or usual.prompt,
        max_tokens=fields.whole("max_tokens", least=1, most=100_000) or usual.max_tokens,
        measure_tokens=fields.whole("measure_tokens", least=1, most=100_000) or usual.measure_tokens,
        ready_limit_s=limit_s,
        is_reasoning=fields.flag("reasoning"),
    )
    fields.finish()
    return proof


def _expected(fields: Fields | None) -> Expected:
    if fields is None:
        return Expected()
    expected = Expected(
        tokens_s=fields.number("tokens_s"),
        tokens_s_most=fields.number("tokens_s_most"),
        first_token_s=fields.number("first_token_s"),
        load_s=fields.number("load_s"),
        available_gib=fields.number("available_gib"),
        source=fields.text("source").strip(),
    )
    low, high = expected.tokens_s, expected.tokens_s_most
    if high is not None and (low is None or high < low):
        fields.add("tokens_s_most", "is the upper end of a range, and `tokens_s` its lower one")
    fields.finish()
    return expected


def _muted(fields: Fields) -> Muted | None:
    muted = Muted(rule=fields.word("rule"), reason=fields.text("reason").strip())
    fields.finish()
    if not muted.rule:
        fields.add("rule", "missing: which rule of the linter", kind=ProblemKind.MISSING)
    if not muted.reason:
        fields.add("reason", "missing: a rule is muted only with its reason", kind=ProblemKind.MISSING)
    return muted if muted.rule and muted.reason else None


def _provenance(fields: Fields) -> Provenance | None:
    known = Provenance(
        source=fields.text("source").strip(),
        date=fields.text("date", is_any=True).strip(),
        says=fields.text("says").strip(),
        resolved=fields.text("resolved").strip(),
    )
    fields.finish()
    if not known.source:
        fields.add("source", "missing: where it comes from", kind=ProblemKind.MISSING)
        return None
    return known
