"""Gates on the launch as configured: lint, memory, context length and secrets. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sparktop.checks.machine import judge_context
from sparktop.cmdline.engine_argv import values_of
from sparktop.dataclass import dataclass
from sparktop.diagnose.lint.catalogue import check
from sparktop.launchspec.read.configuration import read
from sparktop.launchspec.spec import LaunchSpec
from sparktop.masking import mask_text
from sparktop.model.engine import EngineKind
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.prospect import Fit, Gate
from sparktop.model.recipe import Muted, Recipe
from sparktop.operate.launch.inputs.gate_inputs import GateInputs, failed, passed, told, unknown, warned
from sparktop.recipe.container_spec import Rendered
from sparktop.recipe.export import reusable, run_line
from sparktop.recipe.operator_secrets import HUB_TOKEN, env_path, names_required, names_used
from sparktop.recipe.parameters import main_name


def lint_gates(inputs: GateInputs) -> Iterator[Gate]:
    if inputs.rendered is None:
        yield unknown("", f"there is nothing to check: {inputs.unrendered or 'it was not rendered'}")
        return
    result = lint(inputs.rendered, inputs.order.recipe)
    problems = [finding for finding in result.findings if finding.severity is not Severity.INFO]
    for finding in problems:
        make = failed if finding.severity is Severity.CRITICAL else warned
        yield make("", f"{finding.title} ({finding.rule})", _lint_remedy(finding))
    if not problems:
        count = len(result.findings)
        notes = f", {count} remark{'s' if count > 1 else ''}" if count else ""
        muted = ", ".join(dict.fromkeys(mute.rule for mute, _ in result.muted))
        yield passed("", f"no finding{notes}{f'; muted by the recipe: {muted}' if muted else ''}")


def _lint_remedy(finding: Finding) -> str:
    remedy = next(iter(finding.remedies), None)
    if remedy is None:
        return f"mute it in the recipe, with a reason: runtime_config: sparktop: mute: - rule: {finding.rule}"
    # Steps that edit the line are of no use: it is rendered from the recipe.
    steps = [step for step in remedy.steps if not step.startswith(("- ", "+ "))]
    return f"{remedy.title}: {'; '.join(steps)}" if steps else remedy.title


def memory_gate(inputs: GateInputs) -> Gate:
    budget = inputs.budget
    if budget is None:
        return unknown("", f"whether it fits is not known: {inputs.unrendered or 'it was not computed'}")
    lever = "; or ".join(lever.text for lever in budget.levers[:3])
    match budget.fit:
        case Fit.FITS:
            return passed("", budget.sentence)
        case Fit.TIGHT:
            return warned("", budget.sentence, lever or "--set max_model_len=LESS")
        case Fit.NO:
            return failed("", budget.sentence, lever or "a smaller quantisation: --set model=ORG/NAME")
    return unknown("", "; ".join(filter(None, (budget.why, *budget.unknowns))), lever)


def context_gate(inputs: GateInputs) -> Gate:
    tokens, slots = inputs.budget.context_tokens if inputs.budget is not None else None, _slots(inputs)
    tokens = tokens // slots if tokens is not None else None
    model = inputs.models[0].facts
    longest = model.longest_tokens if model is not None else None
    context = main_name("max_model_len")
    used_values = inputs.rendered.values if inputs.rendered is not None else inputs.order.recipe.defaults
    name = next((candidate for candidate in used_values if main_name(candidate) == context), context)
    judgement = judge_context((tokens, longest, inputs.order.recipe.engine is EngineKind.LLAMA_CPP))
    all_slots = (longest or 0) * slots
    return told("", judge_context, judgement, tokens=tokens, longest=longest, all_slots=all_slots, name=name)


def _slots(inputs: GateInputs) -> int:
    """Into how many requests the context is divided: by llama.cpp without a unified cache."""
    engine = inputs.order.recipe.engine
    if inputs.rendered is None or engine is not EngineKind.LLAMA_CPP:
        return 1
    flags = values_of(inputs.rendered.head.argv, engine)
    slots = "1" if "kv-unified" in flags else flags.get("parallel", "1")
    return max(1, int(slots[:6])) if slots.isdecimal() else 1


def secret_gates(inputs: GateInputs) -> Iterator[Gate]:
    """Whether every secret the recipe needs is set; the hub's token counts only where a model is downloaded."""
    order, recipe = inputs.order, inputs.order.recipe
    names = list(names_required(recipe))
    texts = (*recipe.environment.values(), *recipe.node_environment.values())
    if inputs.is_fetched and any(HUB_TOKEN in text for text in texts) and HUB_TOKEN in names_used(recipe):
        names.append(HUB_TOKEN)
    missing = [name for name in names if not order.secrets.get(name)]
    # Such a file matters where a secret is needed: without its API key the engine would serve anybody.
    key = recipe.engine.traits.key_variable
    is_open = bool(key) and not order.secrets.get(key)
    is_wanted = missing or is_open or (not order.secrets.get(HUB_TOKEN) and inputs.is_fetched)
    problems = [problem for problem in order.secret_problems if is_wanted or problem.name not in ("", HUB_TOKEN)]
    for problem in problems:
        if name := problem.name:  # it was intended: without it, what it protects is open
            make = warned if name == HUB_TOKEN and not missing else failed
            gate = make("", problem.text, f"give {name} on one line, quoted if it has blanks or a #")
            yield replace(gate, secrets=(name,))
            continue
        make = failed if missing or is_open else warned
        yield make("", problem.text, problem.remedy)
    for name in missing:
        gate = failed(
            "",
            f"the recipe needs {name} from you, and it is not set",
            f"export {name}=..., or a line {name}=... in {env_path()} (chmod 600 {env_path()})",
        )
        yield replace(gate, secrets=(name,))
    if not missing and not problems:
        names += [name for name, value in order.secrets.items() if value and name not in names]
        names_text = ", ".join(names)
        yield passed("", f"{names_text} {'is' if len(names) == 1 else 'are'} set" if names else "none needed")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintResult:
    """Lint findings of a launch."""

    findings: tuple[Finding, ...]
    """Worst first; a finding of several ranks once."""
    muted: tuple[tuple[Muted, Finding], ...] = ()
    """Findings that the recipe mutes, with its reason."""


def lint(rendered: Rendered, recipe: Recipe) -> LintResult:
    """Lint the launch on these nodes, muted findings apart."""
    unique: dict[object, Finding] = {}
    for finding in check(tuple(_specs(rendered)), mask=mask_text):
        unique.setdefault((finding.rule, finding.subject, finding.title), finding)
    reasons = {muted.rule: muted for muted in recipe.muted}
    return LintResult(
        findings=tuple(finding for finding in unique.values() if finding.rule not in reasons),
        muted=tuple((reasons[finding.rule], finding) for finding in unique.values() if finding.rule in reasons),
    )


def _specs(rendered: Rendered) -> Iterator[LaunchSpec]:
    """The engines in each rank's `docker run` line, as lint reads it, each as one rank of all."""
    for rank in rendered.ranks:
        for spec in read(run_line(reusable(rank.container)), f"{rendered.recipe_id} on {rank.node}").specs:
            yield replace(spec, nodes=max(spec.nodes, len(rendered.ranks)))
