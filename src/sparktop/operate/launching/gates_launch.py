"""Gates of the launch as it is written: what lint finds, whether it fits, its context, its secrets. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.prospect import Fit, Gate
from sparktop.operate.launching.gates_model import is_missing
from sparktop.operate.launching.looked import Looked, failed, passed, unknown, warned
from sparktop.operate.launching.seats import facts
from sparktop.recipe.lint import lint
from sparktop.recipe.ownsecrets import ENGINE_KEY, HUB_TOKEN, needed, place, unusable, wanted
from sparktop.recipe.parameters import main_name


def gates(looked: Looked) -> Iterator[Gate]:
    """recipe-lint, memory, context and secrets."""
    yield from _lint(looked)
    yield _memory(looked)
    yield _context(looked)
    yield from _secrets(looked)


def _lint(looked: Looked) -> Iterator[Gate]:
    if looked.rendered is None:
        yield unknown("recipe-lint", "", f"there is nothing to check: {looked.unrendered or 'it was not rendered'}")
        return
    said = lint(looked.rendered, looked.order.recipe)
    told = [one for one in said.findings if one.severity is not Severity.INFO]
    for finding in told:
        make = failed if finding.severity is Severity.CRITICAL else warned
        yield make("recipe-lint", "", f"{finding.title} ({finding.rule})", _mend(finding))
    if not told:
        count = len(said.findings)
        notes = f", {count} remark{'s' if count > 1 else ''}" if count else ""
        muted = ", ".join(dict.fromkeys(one.rule for one, _ in said.muted))
        yield passed(
            "recipe-lint", "", f"nothing against it{notes}{f'; muted by the recipe: {muted}' if muted else ''}"
        )


def _mend(finding: Finding) -> str:
    remedy = next(iter(finding.remedies), None)
    if remedy is None:
        return f"mute it in the recipe with a reason: runtime_config: sparktop: mute: - rule: {finding.rule}"
    # The linter shows how its line would change; this line is made anew from the recipe, so only words are of use.
    steps = [step for step in remedy.steps if not step.startswith(("- ", "+ "))]
    return f"{remedy.title}: {'; '.join(steps)}" if steps else remedy.title


def _memory(looked: Looked) -> Gate:
    budget = looked.budget
    if budget is None:
        return unknown("memory", "", f"whether it fits is not known: {looked.unrendered or 'it was not computed'}")
    lever = "; or ".join(budget.levers[:3])
    match budget.fit:
        case Fit.FITS:
            return passed("memory", "", budget.sentence)
        case Fit.TIGHT:
            return warned("memory", "", budget.sentence, lever or "--set max_model_len=LESS")
        case Fit.NO:
            return failed("memory", "", budget.sentence, lever or "a smaller quantisation: --set model=ORG/NAME")
    return unknown("memory", "", "; ".join((budget.sentence, *budget.unknowns)).strip("; "), lever)


def _context(looked: Looked) -> Gate:
    """Both engines refuse a longer context than the model was made for, unless they are told otherwise; a scaling that
    its config.json has may make it longer, so it is no more than warned of."""
    asked = looked.budget.context_tokens if looked.budget is not None else None
    model = facts(looked.order, looked.nodes, looked.survey)
    longest = model.longest_tokens if model is not None else None
    if asked is None:
        return passed("context", "", "as long as the engine chooses")
    if longest is None:
        return unknown("context", "", f"{asked:,} tokens; how long the model's context may be is not known")
    if asked <= longest:
        return passed("context", "", f"{asked:,} tokens of the {longest:,} that the model was made for")
    context = main_name("max_model_len")
    own = looked.rendered.values if looked.rendered is not None else looked.order.recipe.defaults
    name = next((one for one in own if main_name(one) == context), context)
    return warned(
        "context",
        "",
        f"{asked:,} tokens are more than the {longest:,} that the model was made for (its max_position_embeddings): "
        "the engine is likely to refuse its start",
        f"--set {name}={longest}",
    )


def _secrets(looked: Looked) -> Iterator[Gate]:
    """What the recipe takes from its operator; the hub's token only where the model has to be fetched."""
    order, recipe = looked.order, looked.order.recipe
    names = list(needed(recipe))
    texts = (*recipe.environment.values(), *recipe.node_environment.values())
    if is_missing(looked) and any(HUB_TOKEN in text for text in texts) and HUB_TOKEN in wanted(recipe):
        names.append(HUB_TOKEN)
    missing = [name for name in names if not order.secrets.get(name)]
    # It matters where something is wanted that such a file may hold: without the engine's key it would serve anybody.
    is_open = ENGINE_KEY in wanted(recipe) and not order.secrets.get(ENGINE_KEY)
    is_wanted = missing or is_open or (not order.secrets.get(HUB_TOKEN) and is_missing(looked))
    problems = [one for one in order.secret_problems if is_wanted or unusable(one) not in ("", HUB_TOKEN)]
    for problem in problems:
        if name := unusable(problem):  # it was meant: what it protects would stand open without it
            make = warned if name == HUB_TOKEN and not missing else failed
            yield make("secrets", "", problem, f"give {name} on one line, in quotes where it has blanks or a #")
            continue
        make = failed if missing or is_open else warned
        by_hand = problem.rpartition(": ")[2] if "by others" in problem else f"ls -l {problem.partition(' ')[0]}"
        yield make("secrets", "", problem, by_hand)
    for name in missing:
        yield failed(
            "secrets",
            "",
            f"the recipe takes {name} from its operator, and it is not set",
            f"export {name}=..., or a line {name}=... in {place()} (chmod 600 {place()})",
        )
    if not missing and not problems:
        names += [name for name, value in order.secrets.items() if value and name not in names]
        given = ", ".join(names)
        yield passed("secrets", "", f"{given} {'is' if len(names) == 1 else 'are'} set" if names else "none are wanted")
