"""Gates of the models: whole on every node or to be had, the hub that has it, and the way from node to node. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from sparktop.model.prospect import Gate
from sparktop.operate.launching import fetchsteps, fetchways
from sparktop.operate.launching.fetchneeds import Wanted, all_wanted
from sparktop.operate.launching.looked import Looked, failed, gb, passed, unknown, warned, why_not
from sparktop.operate.launching.seats import TOKEN, disk_ask, hub_ask
from sparktop.operate.survey import Ask, FileText
from sparktop.recipe.models import Found, is_path, is_repo
from sparktop.recipe.ownsecrets import place
from sparktop.recipe.rendered import Seat

_PAGES = "https://huggingface.co"


def folder_ask(node: str, model: str) -> FileText:
    """Of a model that is named by its place, and lies where models aren't looked for."""
    return FileText(node=node, path=f"{model.rstrip('/')}/config.json", limit_bytes=1 << 16)


def asks(looked: Looked) -> Iterator[Ask]:
    """What each node has; then the hub, and how it could come from node to node."""
    yield from fetchsteps.asks(looked.order, looked.seats, looked.survey)
    for wanted in wanted_of(looked):
        if is_path(wanted.model) and wanted.model.startswith("/"):
            yield from (folder_ask(seat.node, wanted.model) for seat in wanted.lacking)


def wanted_of(looked: Looked) -> tuple[Wanted, ...]:
    """All that the launch loads."""
    return all_wanted(looked.order, looked.seats, looked.survey)


def is_missing(looked: Looked) -> bool:
    """Whether a node that could be asked lacks one of the models, so that it is fetched."""
    return any(wanted.lacking for wanted in wanted_of(looked))


def gates(looked: Looked) -> Iterator[Gate]:
    """model and ssh; hub, where a model is one of a hub's. For each model."""
    yield from dict.fromkeys(gate for wanted in wanted_of(looked) for gate in _gates(looked, wanted))


def _gates(looked: Looked, wanted: Wanted) -> Iterator[Gate]:
    model = wanted.model
    if not is_repo(model) and not is_path(model):
        yield failed("model", "", f"{model!r} is neither a repository nor a path", wanted.remedy)
        return
    for node in looked.nodes:
        yield _model(looked, wanted, node)
    if is_repo(model):
        yield _hub(looked, wanted)
    if wanted.lacking and len(looked.seats) == 2 and looked.order.may_fetch:
        yield _ssh(wanted)


# --- what is there


def _model(looked: Looked, wanted: Wanted, node: str) -> Gate:
    survey, called = looked.survey, wanted.called
    if node not in wanted.disks:
        why = why_not(survey, disk_ask(node), "it was not asked")
        return unknown("model", node, f"which models {node} has is not known: {why}")
    found = wanted.found[node]
    if node not in {seat.node for seat in wanted.lacking} and found is not None:
        return passed("model", node, f"{called} is there, {gb(found.size_bytes)}: {found.path}")
    if is_path(wanted.model) and found is None and survey.value(folder_ask(node, wanted.model)):
        return passed("model", node, f"{called} has a config.json; whether all of it is there was not looked at")
    state = _state(wanted, node, found)
    by_hand = _by_hand(wanted, node)
    if not looked.order.may_fetch:
        return failed("model", node, f"{state}, and nothing may be fetched", by_hand)
    if wanted.source is not None:
        size = f"{gb(wanted.size_bytes)}, " if wanted.size_bytes else ""
        return warned("model", node, f"{state}; it comes first: {size}{wanted.source.node} has it", by_hand)
    if is_path(wanted.model):
        return failed("model", node, state, by_hand)
    said = wanted.size_bytes
    size = gb(said) if said else "its size is not known"
    return warned("model", node, f"{state}; it comes first: {size}", f"{by_hand}   # to have it beforehand")


def _state(wanted: Wanted, node: str, found: Found | None) -> str:
    if found is None:
        where = f"there is no model at {wanted.model} on {node}"
        return where if is_path(wanted.model) else f"{wanted.called} is not on {node}"
    if found.is_complete:
        return f"{wanted.called} on {node} is another state of it ({found.revision[:12]}) than on the other node"
    missing = f": {', '.join(found.missing[:3])}" if found.missing else ""
    count = f"{len(found.missing)} files missing{missing}" if found.missing else "not whole"
    return f"{wanted.called} is on {node} in part, {gb(found.size_bytes)}, {count}"


def _by_hand(wanted: Wanted, node: str) -> str:
    if is_path(wanted.model):
        if wanted.source is None:
            return f"{wanted.remedy}   # a repository can be fetched; or a path that is there"
        path = shlex.quote(wanted.model.rstrip("/"))
        return f"on {wanted.source.node}: rsync -a --partial {path}/ {node}:{path}/"
    revision = f" --revision {shlex.quote(wanted.given)}" if wanted.given else ""
    return f"on {node}: hf download {shlex.quote(wanted.model)}{revision}"


# --- the hub


def _hub(looked: Looked, wanted: Wanted) -> Gate:
    order, node, model = looked.order, looked.head, wanted.called
    if not wanted.disks:
        return unknown("hub", "", f"whether {model} has to be fetched is not known")
    if not wanted.lacking or wanted.source is not None:
        return passed("hub", "", f"not needed: {model} is on {(wanted.source or looked.seats[0]).node}")
    if not order.may_fetch:
        return failed("hub", "", f"{model} is whole on no node, and nothing may be fetched", _by_hand(wanted, node))
    ask = hub_ask(order, node, wanted.one)
    said = wanted.hub if ask is not None and ask in looked.survey.answers else None
    if said is None:
        return unknown("hub", node, f"whether {order.hub} has {model} is not known: it was not asked")
    has_token = bool(order.secrets.get(TOKEN)) or any(disk.has_token for disk in wanted.disks.values())
    page = f"{(order.hub or _PAGES).rstrip('/')}/{wanted.model}"
    give = f"export {TOKEN}=..., or {TOKEN}=... in {place()} (chmod 600 {place()}), or on {node}: hf auth login"
    if said.status in (401, 403):
        if has_token:
            detail = f"the hub does not give {model} to this token (HTTP {said.status}): no access, or no such model"
            return failed("hub", node, detail, f"ask for access at {page} with the token's account; or another: {give}")
        detail = f"the hub does not give {model} without a token (HTTP {said.status}): gated, private or not there"
        return failed("hub", node, detail, f"accept its terms at {page}, then give a token by {give}")
    if said.status == 404:
        return failed("hub", node, f"the hub has no {model} (HTTP 404)", f"look at {page}; {wanted.remedy}")
    if not said.is_there:
        problem = (ask and looked.survey.problem(ask)) or said.problem or "no answer"
        status = f" (HTTP {said.status})" if said.status else ""
        return failed(
            "hub",
            node,
            f"{order.hub} can't be asked from {node}{status}: {problem}",
            f"on {node}: curl -sSI {order.hub}   # a proxy: HTTPS_PROXY; a mirror: export HF_ENDPOINT=https://...",
        )
    if said.is_gated and not has_token:
        detail = f"{model} is gated: its files come only with a token of an account that has been granted access"
        return failed("hub", node, detail, f"accept its terms at {page}, then give a token by {give}")
    size = f", {gb(said.size_bytes)} in {len(said.needed)} files" if said.size_bytes else ""
    return passed("hub", node, f"{model} can be had{size}{', gated, with a token' if said.is_gated else ''}")


# --- from node to node


def _ssh(wanted: Wanted) -> Gate:
    """The node that lacks it logs in to the one that has it, or has it first."""
    target = wanted.lacking[-1]
    source = wanted.source or next(seat for seat in wanted.seats if seat.node != target.node)
    node, where = target.node, f"{source.node} at {source.fabric_ip}"
    reach, why = wanted.reach_ask(target, source), wanted.why_no_copy(target, source)
    if not source.fabric_ip or reach is None:
        return unknown("ssh", node, why)
    if not {reach, fetchways.rsync_ask(node)} <= set(wanted.survey.answers):
        return unknown("ssh", node, f"whether {node} may log in to {where} was not asked")
    if why:
        return warned("ssh", node, f"{why}: nothing is copied from node to node", _mend(wanted, target, source, why))
    return passed("ssh", node, f"logs in to {where} without a password, rsync on both")


def _mend(wanted: Wanted, target: Seat, source: Seat, why: str) -> str:
    if "no rsync" in why:
        return f"on {target.node}: sudo apt-get install rsync"
    where = fetchways.address(source.fabric_ip, wanted.user_for(target, source)) or source.node
    return f"on {target.node}: ssh-copy-id {where} && ssh {where} rsync --version"
