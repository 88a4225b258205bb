"""Read the sections of a recipe that sparktop adds, under `runtime_config: sparktop:`; problems go to the sheet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields as dataclass_fields

from sparktop.errors import nearest
from sparktop.model.recipe import Expected, Muted, Need, Proof, Provenance, Requirement, Scalar
from sparktop.recipe.models import is_path, is_repo
from sparktop.recipe.problems import shown
from sparktop.recipe.read.fields import Fields

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
EXECUTORS = ("native", "ray")
KEYS = (
    "title", "executor", "served_name", "model_inside", "models", "node_environment", "need", "requires", "ready",
    "smoke_test", "expected", "mute", "provenance", "risks", "settings",
)  # fmt: skip


def finish(own: Fields) -> None:
    """Report every key that was not read; one of `need` may stand one level too high, misspelt or not."""
    meant = {name: nearest(name, (need_field.name for need_field in dataclass_fields(Need))) for name in own}
    own.finish(
        elsewhere={
            name: f"{own.dotted('need')}.{nearest_key}"
            for name, nearest_key in meant.items()
            if nearest_key and not nearest(name, KEYS)
        }
    )


def read_models(own: Fields) -> tuple[str, ...]:
    """The further models."""
    names = own.texts("models")
    for name in names:
        if "{" not in name and not is_repo(name) and not is_path(name):
            own.add(
                "models", f"`{shown(name)}` is not a model name", remedy="a Hugging Face name is organisation/model"
            )
    return names


def read_texts_by_name(fields: Fields) -> dict[str, str]:
    """Texts by the names of variables or parameters."""
    values = {name: fields.text(name, is_any=True) for name in fields}
    for name in values:
        if not VARIABLE.fullmatch(name):
            fields.add(name, "not a variable name", remedy="use letters, digits and _")
    return values


def read_need(fields: Fields, metadata: Mapping[str, Scalar]) -> Need:
    """Memory that it needs; the weights from sparkrun's metadata where the section has none."""
    names = ("weights_gib", "kv_bytes_per_token", "active_gib", "spike_gib", "reserve_gib")
    figures = {name: fields.number(name) for name in names}
    pinned = metadata.get("model_vram")
    if figures["weights_gib"] is None and isinstance(pinned, int | float) and not isinstance(pinned, bool):
        figures["weights_gib"] = float(pinned) if pinned > 0 else None
    need = Need(**figures, share=fields.number("share", least=0.05, most=0.98))
    fields.finish()
    return need


def read_requires(fields: Fields) -> Requirement:
    """What it wants to be checked before a launch."""
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


def read_proof(own: Fields, readiness: Fields) -> Proof:
    """What proves a launch: by sparktop's own keys, else by sparkrun's `readiness`."""
    default, ready, smoke = Proof(), own.section("ready"), own.section("smoke_test")
    prompts = smoke.text("prompt").strip(), readiness.text("inference_prompt").strip(), default.prompt
    limit_s = ready.number("limit_s", least=10, most=86_400)
    limits_s = [readiness.number(name, least=1, most=86_400) or 0.0 for name in ("port_timeout_s", "health_timeout_s")]
    if limit_s is None and any(limits_s):
        limit_s = max(sum(limits_s), 60.0)
    proof = Proof(
        prompt=next(filter(None, prompts)),
        max_tokens=smoke.whole("max_tokens", least=1, most=100_000) or default.max_tokens,
        measure_tokens=smoke.whole("measure_tokens", least=1, most=100_000) or default.measure_tokens,
        ready_limit_s=default.ready_limit_s if limit_s is None else limit_s,
        is_reasoning=smoke.flag("reasoning"),
    )
    readiness.number("inference_timeout_s", least=1, most=86_400)
    readiness.text("inference_style")
    for name in ("inference_timeout_s", "inference_style"):
        if name in readiness:
            readiness.note(name, "has no effect: sparktop's first request is a chat, watched to its end")
    if not readiness.flag("inference", True):
        readiness.note("inference", "has no effect: sparktop proves every launch by a first request")
    for section in (ready, smoke, readiness):
        section.finish()
    return proof


def read_expected(fields: Fields) -> Expected:
    """Figures that somebody measured."""
    names = ("tokens_s", "tokens_s_most", "first_token_s", "load_s", "available_gib")
    figures = {name: fields.number(name) for name in names}
    expected = Expected(**figures, source=fields.text("source").strip())
    low, high = expected.tokens_s, expected.tokens_s_most
    if high is not None and (low is None or high < low):
        fields.add("tokens_s_most", "is the upper end of a range and needs `tokens_s`, the lower end")
    fields.finish()
    return expected


def read_muted(fields: Fields) -> Muted | None:
    """A lint rule that is muted; None without a rule or a reason."""
    muted = Muted(rule=fields.word("rule"), reason=fields.text("reason").strip())
    fields.finish()
    if not muted.rule:
        fields.missing("rule", "missing: name the lint rule")
    if not muted.reason:
        fields.missing("reason", "missing: say why you mute the rule")
    return muted if muted.rule and muted.reason else None


def read_provenance(fields: Fields) -> Provenance | None:
    """Where the recipe comes from; None without a source."""
    provenance = Provenance(
        source=fields.text("source").strip(),
        date=fields.text("date", is_any=True).strip(),
        says=fields.text("says").strip(),
        resolved=fields.text("resolved").strip(),
    )
    fields.finish()
    if not provenance.source:
        fields.missing("source", "missing: say where it comes from")
        return None
    return provenance
