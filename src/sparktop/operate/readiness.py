"""Whether an engine that was started answers: its phases and counts on the way, and why it will not any more. Pure.

What is shown of an engine may still be of the run before: Docker is asked every few seconds, and figures stay until the
next scrape. So only what belongs to the new run counts: a container started anew, or processes that weren't there.
"""

from __future__ import annotations

from dataclasses import replace

from sparktop.diagnose.live.ranks import Rank, other_ranks
from sparktop.diagnose.live.window import span
from sparktop.model.engine import Container, Engine, EngineState, LogFacts
from sparktop.model.event import Severity
from sparktop.model.finding import Finding
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.plan import AwaitReady
from sparktop.operate.judging import Judgement, Since, Verdict

FAILED_SILENT_S = 15.0
"""After a line that said it failed, its log has been silent for so long: it is not on its way any more."""
LOG_READ_S = 6.0
"""A log is followed some seconds after its container is listed: by then the reason of a quick end has been read."""
STUCK_S = 600.0
"""A load that tells nothing new for so long: a compilation or a shard from a slow disk is over by then."""
SETTLED_S = 10.0
"""By then a list of containers is newer than the start."""
STARTED_WITHIN_S = 600.0
"""Ranks are started one right after the other."""
_UP = (EngineState.READY, EngineState.SERVING)
_OVER = ("exited", "dead", "removing")


def judge_ready(act: AwaitReady, picture: FleetState, node: str, since: Since) -> Judgement:
    """Met when the engine of this container answers in its new run; failed when that ended or says that it failed.

    While it is waited for, `late` says by its log whether it is slow or stuck, and what gives it longer.
    """
    found = _judged(act, picture, node, since)
    if found.verdict is not Verdict.WAITING:
        return found
    view = picture.node(node)
    engine = _engine(act.name, view) if view is not None else None
    late = "; ".join(filter(None, (_pace(engine, view), act.longer)))
    return replace(found, late=late)


def _judged(act: AwaitReady, picture: FleetState, node: str, since: Since) -> Judgement:
    view = picture.node(node)
    if view is None:
        return Judgement(verdict=Verdict.WAITING, detail=f"no figures from {node} yet")
    if act.container_id and not _is_listed(act, view):
        return Judgement(verdict=Verdict.WAITING, detail="started; not seen running yet")
    box = next((one for one in view.containers.containers if one.name == act.name), None)
    engine = _engine(act.name, view)
    if box is None and engine is not None:
        box = engine.container
    if not _is_anew(box, engine, act, since):
        return Judgement(verdict=Verdict.WAITING, detail="started; not seen running yet")
    if engine is not None and box is not None and _is_older(engine, box):
        engine = None
    log = _of_this_run(engine, box)
    if box is not None and (ended := _ended(box, engine, log, since.before)) is not None:
        is_over = _says_why(log) or _is_past(box, view)
        return Judgement(verdict=Verdict.FAILED if is_over else Verdict.WAITING, detail=ended)
    if (lost := _lost_rank(act, picture, since)) is not None:
        return Judgement(verdict=Verdict.FAILED, detail=lost)
    if engine is None:
        return Judgement(verdict=Verdict.WAITING, detail="its container runs; no engine is seen in it yet")
    if engine.state is EngineState.EXITED:
        return Judgement(verdict=Verdict.FAILED, detail=_told(engine.exit_detail or "its process ended", log))
    if log is not None and log.failure and (engine.state in _UP or _is_silent(log, view)):
        return Judgement(verdict=Verdict.FAILED, detail=_told("it has not ended, and its log says that it failed", log))
    if engine.state in _UP and _is_fresh(engine, since):
        return Judgement(verdict=Verdict.MET, detail=_ready(engine), ratio=1.0)
    if act.is_worker and _has_head_up(engine, view, picture, since):
        return Judgement(verdict=Verdict.MET, detail="its head answers", ratio=1.0)
    return _coming(engine, log)


def _is_listed(act: AwaitReady, view: NodeView) -> bool:
    """Whether the container that is meant is seen under its name: another of the name is of another launch."""
    return any(one.name == act.name and one.container_id == act.container_id for one in view.containers.containers)


def _says_why(log: LogFacts | None) -> bool:
    """Whether its reason has been read; the last lines come after its end is known."""
    return log is not None and bool(log.failure or _worst(log))


def _worst(log: LogFacts) -> Finding | None:
    return next((one for one in log.findings if one.severity is Severity.CRITICAL), None)


def _is_past(box: Container, view: NodeView) -> bool:
    """Whether it ended so long ago that its log would have been read by now."""
    if view.sample is None or box.finished_wall_s is None:
        return True
    return view.sample.wall_s - box.finished_wall_s >= LOG_READ_S


def _lost_rank(act: AwaitReady, picture: FleetState, since: Since) -> str | None:
    """That another rank, of a run that began with this one, has ended: this one would wait for it for ever."""
    waited_s = picture.monotonic_s - since.began_monotonic_s
    for node, name in act.together:
        view = picture.node(node)
        box = next((one for one in view.containers.containers if one.name == name), None) if view else None
        if view is None or view.sample is None or box is None or box.started_wall_s is None or waited_s < SETTLED_S:
            continue
        if view.sample.wall_s - box.started_wall_s > waited_s + STARTED_WITHIN_S:
            continue  # of the name, and of an earlier launch: containers are listed some seconds late
        other = _engine(name, view)
        log = _of_this_run(other, box)
        if not _says_why(log) and not _is_past(box, view):
            continue
        if (ended := _ended(box, other, log, None)) is not None:
            return f"its other rank, {name} on {node}, is not there any more: {ended}"
    return None


def _engine(name: str, view: NodeView) -> Engine | None:
    """The engine in the container of that name, a living one first; else one of that name without a container."""
    found = [one for one in view.engines if (one.container.name if one.container else one.name) == name]
    return min(found, key=lambda one: one.state is EngineState.EXITED, default=None)


def _is_anew(box: Container | None, engine: Engine | None, act: AwaitReady, since: Since) -> bool:
    """Whether what is seen is of a run that began after the change did; by the node's own stamps, not by ours.

    With `any_run` one that ran before counts too, as long as it runs; one that had ended is still that until another is
    seen: a list of containers may be some seconds old.
    """
    name = act.name
    old = _engine(name, since.before) if since.before else None
    if box is not None:
        before = next(
            (one for one in (since.before.containers.containers if since.before else ()) if one.name == name),
            old.container if old else None,
        )
        if before is None:
            return box.status != "created"
        if (box.container_id, box.started_wall_s) != (before.container_id, before.started_wall_s):
            return True
        return act.any_run and before.status == box.status == "running"
    if engine is None:
        return False
    return act.any_run or old is None or old.state is EngineState.EXITED or not set(old.pids) & set(engine.pids)


def _is_older(engine: Engine, box: Container) -> bool:
    """Whether the engine is still that of the run before: containers are listed at other moments than engines."""
    seen = engine.container
    return seen is not None and (seen.container_id, seen.started_wall_s) != (box.container_id, box.started_wall_s)


def _of_this_run(engine: Engine | None, box: Container | None) -> LogFacts | None:
    """What its log says, unless its newest line is older than the container's start."""
    log = engine.log if engine else None
    if log is None or box is None or box.started_wall_s is None:
        return log
    return log if (log.last_line_wall_s or 0.0) >= box.started_wall_s - 1.0 else None


def _ended(box: Container, engine: Engine | None, log: LogFacts | None, before: NodeView | None) -> str | None:
    was = next(
        (one for one in (before.containers.containers if before else ()) if one.container_id == box.container_id), None
    )
    if box.status == "restarting":
        return _told("its container ends and is started again and again", log)
    if box.status in _OVER:
        ended = engine.exit_detail if engine and engine.exit_detail else f"ended with exit code {box.exit_code}"
        return _told(ended, log)
    if box.restart_count > 0 and (was is None or box.restart_count > was.restart_count):
        return _told(f"it ended and was started again {box.restart_count} times by its restart policy", log)
    return None


def _told(what: str, log: LogFacts | None) -> str:
    """How it ended, its first line of error, and what is known of that."""
    parts = [what]
    worst = _worst(log) if log is not None else None
    said = log.failure if log is not None else ""
    if not said and worst is not None and worst.evidence:
        said = worst.evidence[0].text
    if said:
        parts.append(f'its log: "{said[:200]}"')
    if worst is not None:
        parts.append(worst.title)
    return ". ".join(parts)


def _is_silent(log: LogFacts, view: NodeView) -> bool:
    now_s = view.sample.wall_s if view.sample else None
    return now_s is not None and now_s - (log.last_line_wall_s or 0.0) >= FAILED_SILENT_S


def _is_fresh(engine: Engine, since: Since) -> bool:
    """Figures of before the wait began are of the run before."""
    return engine.metrics is None or engine.metrics.wall_s >= since.began_wall_s


def _has_head_up(engine: Engine, view: NodeView, picture: FleetState, since: Since) -> bool:
    """A further rank has no figures of its own, and often no log: its head's first answer is its own too."""
    others = other_ranks(Rank(node=view, engine=engine), picture)
    return any(other.engine.state in _UP and _is_fresh(other.engine, since) for other in others)


def _pace(engine: Engine | None, view: NodeView | None) -> str:
    """Whether a load still gets further, by the node's own stamps; empty where nothing tells."""
    log = _of_this_run(engine, engine.container if engine else None)
    if log is None or log.moved_wall_s is None or view is None or view.sample is None:
        return ""
    still_s = max(0.0, view.sample.wall_s - log.moved_wall_s)
    silent_s = max(0.0, view.sample.wall_s - (log.last_line_wall_s or log.moved_wall_s))
    if still_s < STUCK_S:
        return f"it last got further {span(still_s)} ago, so it is slow and not stuck"
    if silent_s < STUCK_S:
        return f"it has not got further for {span(still_s)}, and its log goes on: see what it says there"
    return (
        f"it has not got further for {span(still_s)}, and its log is silent: it is stuck rather than slow, and more "
        "time alone is unlikely to help"
    )


def _ready(engine: Engine) -> str:
    took = f" after {span(engine.uptime_s)}" if engine.uptime_s is not None else ""
    return f"answers{took}"


def _coming(engine: Engine, log: LogFacts | None) -> Judgement:
    progress = engine.progress or (log.progress if log else None)
    phase = (progress.phase if progress else "") or (log.phase if log else "")
    words = {
        EngineState.LOADING: f"loading{f' {phase}' if phase else ''}",
        EngineState.CAPTURING: "capturing graphs",
        EngineState.STARTING: f"starting{f', {phase}' if phase else ''}",
    }.get(engine.state, "running, and says nothing yet")
    ratio = None
    if progress is not None and progress.total > 0:
        words += f" {progress.done}/{progress.total}"
        ratio = min(1.0, progress.done / progress.total)
    up = f", {span(engine.uptime_s)} so far" if engine.uptime_s is not None else ""
    return Judgement(verdict=Verdict.WAITING, detail=words + up, ratio=ratio)
