"""Which engine a request means, with all its ranks, or why that can't be told. Pure."""

from __future__ import annotations

from sparktop.diagnose.live.ranks import is_alive
from sparktop.model.fleet import FleetState
from sparktop.model.plan import Refusal, Request
from sparktop.operate.pair import Rank, find, missing, ranks


def the_team(request: Request, picture: FleetState) -> tuple[Rank, ...] | Refusal:
    """All ranks of the engine that is meant, head first.

    Without a name it is the only engine there: the living one, else the one that ended last.
    """
    unknown = [name for name in request.nodes if picture.node(name) is None]
    if unknown or not request.nodes:
        named = f"{unknown[0]} is not one of the nodes watched here" if unknown else "no node is named"
        return Refusal(request=request, reason=named, remedies=tuple(f"there is {one.name}" for one in picture.nodes))
    name = request.target.strip()
    if not name:
        there = _named(request, picture, alive=True) or _named(request, picture, alive=False)[:1]
        heads = {ranks(one.engine.key, one.node, picture)[0].engine.key: one for one in there}
        if len(heads) != 1:
            reason = (
                "which engine is meant? Name one" if heads else f"no engine is seen on {' or '.join(request.nodes)}"
            )
            return Refusal(
                request=request, reason=reason, remedies=tuple(f"{o.engine.name} on {o.node}" for o in there)
            )
        asked: Rank | None = next(iter(heads.values()))
    else:
        asked = next((rank for node in request.nodes if (rank := find(name, node, picture)) is not None), None)
    if asked is None:
        there = _named(request, picture, alive=True)
        return Refusal(
            request=request,
            reason=f"no engine of that name is on {' or '.join(request.nodes)}",
            remedies=tuple(f"there is {one.engine.name} on {one.node}" for one in there),
        )
    return ranks(asked.engine.key, asked.node, picture)


def alone_refusal(request: Request, team: tuple[Rank, ...], picture: FleetState) -> Refusal | None:
    """An engine of two nodes is not stopped and started on one: the other rank would wait in a collective for ever."""
    count = missing(team, picture)
    if not count:
        return None
    name = team[0].engine.name
    seen = ", ".join(f"{rank.engine.name} on {rank.node}" for rank in team)
    return Refusal(
        request=request,
        reason=f"{name} runs over {len(team) + count} nodes, and {count} of its ranks {'is' if count == 1 else 'are'} "
        f"not seen here (seen: {seen}); a rank that is started alone waits for the others, and they for it",
        remedies=("watch both nodes: sparktop HOST HOST, or name both: sparktop act ACTION HOST HOST",),
    )


def _named(request: Request, picture: FleetState, *, alive: bool) -> list[Rank]:
    return [
        Rank(node=view.name, engine=engine)
        for view in picture.nodes
        if view.name in request.nodes
        for engine in view.engines
        if is_alive(engine) is alive
    ]
