"""Load scenarios by name: scripts of two simulated Sparks, from the TOML files in scenarios/ (its README.md has the
keys).

A file may extend another one next to it: tables are merged key by key, lists of tables by `name`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparktop.errors import ConfigError
from sparktop.sim.scenario import hub
from sparktop.sim.scenario.script import (
    ENGINE_TRACKS,
    NODE_TRACKS,
    CapturedAnswer,
    ContainerScript,
    DiskModel,
    EngineScript,
    Fault,
    FaultKind,
    InterfaceScript,
    KernelEntry,
    LogEntry,
    Machine,
    Needs,
    NodeScript,
    ProcessScript,
    RdmaScript,
    Reaction,
    Repeat,
    Run,
    Scenario,
    UnitScript,
)
from sparktop.sim.scenario.sections import Section, merged, nearest, parse

__all__ = ["Scenario", "available", "load", "load_file"]

_DAY_S = 86_400.0
_PARTS = ("gpu", "desktop")
"""Parts of a machine that have reactions of their own."""


def available() -> tuple[tuple[str, str], ...]:
    """(name, title) of every shipped scenario, the healthy one first."""
    scenarios = [(path.stem, str(parse(path).get("title", ""))) for path in _directory().glob("[!_]*.toml")]
    return tuple(sorted(scenarios, key=lambda row: (row[0] != "healthy", row[0])))


def load(name: str) -> Scenario:
    """A shipped scenario, by name.

    Raises:
        ConfigError: unknown name, or an error in its file.
    """
    names = [name_ for name_, _ in available()]
    if name not in names:
        hint = nearest(name, names) or "sparktop demo --list shows what each one is"
        raise ConfigError(f"there is no scenario {name!r}; there are {', '.join(names)}", hint=hint)
    return load_file(_directory() / f"{name}.toml")


def load_file(path: Path) -> Scenario:
    """A scenario from a file; the file it extends is looked up next to it.

    Raises:
        ConfigError: names the file, the key, and the nearest valid key.
    """
    raw, seen = parse(path), {path}
    while "extends" in raw:
        base = path.with_name(f"{raw.pop('extends')}.toml")
        if base in seen:
            raise ConfigError(f"{path.name}: extends: goes in a circle at {base.name}")
        seen.add(base)
        raw = merged(parse(base), raw)
    return _scenario(Section(raw, path.name), path.stem)


def _directory() -> Path:
    return Path(__file__).parent.with_name("scenarios")


def _scenario(top: Section, name: str) -> Scenario:
    length_s = top.number("length_s")
    if length_s <= 0:
        raise top.error("length_s", "must be more than 0")
    repeat = Repeat(top.choice("repeat", list(Repeat), Repeat.LOOP))
    title, description = top.text("title"), top.text("description")
    nodes = tuple(_node(section, length_s, repeat) for section in top.sections("nodes"))
    if not nodes:
        raise top.error("nodes", "there must be at least one", "write a [[nodes]] table")
    names = [node.name for node in nodes]
    if len(set(names)) < len(names):
        raise top.error("nodes", f"names must differ: {', '.join(names)}")
    remedies_s = top.numbers("remedies_s")
    top.done()
    return Scenario(
        name=name, title=title, description=description.strip(), length_s=length_s, repeat=repeat, nodes=nodes,
        remedies_s=remedies_s,
    )  # fmt: skip


def _node(node: Section, length_s: float, repeat: Repeat) -> NodeScript:
    name = node.text("name")
    boot_age_s = node.number("boot_age_days", 4.1) * _DAY_S
    reactions = {one.name: one for one in (_reaction(section) for section in node.sections("reactions"))}
    containers = tuple(_container(section, reactions) for section in node.sections("containers"))
    containers_by_name = {container.name: container for container in containers}
    if repeat is Repeat.LOOP:
        for container in containers:
            if any(run.start_s >= 0 or run.end_s is not None for run in container.runs):
                hint = 'what begins or ends within the scenario needs repeat = "restart" or "hold"'
                raise node.error("containers", f"{container.name} begins or ends, and the scenario loops", hint)
    period_s = length_s if repeat is Repeat.LOOP else None
    tracks = node.tracks("tracks", NODE_TRACKS, period_s)
    engines = tuple(_engine(section, containers_by_name, period_s) for section in node.sections("engines"))
    script = NodeScript(
        name=name,
        seed=node.whole("seed", 1),
        boot_age_s=boot_age_s,
        machine=_machine(node.section("machine"), name),
        tracks=tracks,
        containers=containers,
        engines=engines,
        processes=tuple(_process(section, containers_by_name, boot_age_s) for section in node.sections("processes")),
        kernel=tuple(_kernel(section, boot_age_s) for section in node.sections("kernel")),
        faults=tuple(_fault(section, length_s) for section in node.sections("faults")),
        interfaces=tuple(_interface(section, period_s) for section in node.sections("interfaces")),
        rdma=tuple(_rdma(section) for section in node.sections("rdma")),
        units=tuple(_unit(section, period_s) for section in node.sections("units")),
        models=tuple(_disk_model(section) for section in node.sections("models")),
        images=node.texts("images"),
        answers=tuple(
            section.read(CapturedAnswer, "name output errors code is_missing until_reboot")
            for section in node.sections("answers")
        ),
        reactions=tuple(one for name, one in reactions.items() if name in _PARTS),
    )
    for name in reactions:
        if name not in (*containers_by_name, *_PARTS):
            raise node.error("reactions", f"{name!r} is no container of this node, nor {' nor '.join(_PARTS)}")
    for name in script.images:
        if hub.image(name) is None:
            raise node.error("images", f"{name!r} is not in hub.toml")
    node.done()
    return script


def _disk_model(section: Section) -> DiskModel:
    name = section.text("name")
    if hub.model(name) is None:
        raise section.error("name", f"{name!r} is not in hub.toml")
    held_gib = section.optional_number("held_gib")
    return section.read(
        DiskModel, "folder", name=name, held_bytes=None if held_gib is None else int(held_gib * 1024**3)
    )


def _machine(section: Section, name: str) -> Machine:
    keys = """
        user user_id total_kib driver dgx kernel disk_gib disk_free_gib driver_installed next_kernel next_driver lingers
        needs_password has_mesh
        removes_ipc graphical needs_password has_mesh
    """
    return section.read(Machine, keys, hostname=section.text("hostname", name))


def _interface(section: Section, period_s: float | None) -> InterfaceScript:
    interface = section.read(InterfaceScript, "name addresses mtu up speed_mbps")
    return replace(interface, mtu=interface.mtu.repeating(period_s), up=interface.up.repeating(period_s))


def _rdma(section: Section) -> RdmaScript:
    gids = [gid.partition(" ") for gid in section.texts("gids")]
    if not all(index.isdecimal() and address for index, _, address in gids):
        raise section.error("gids", "must be a list of strings such as", 'gids = ["3 192.168.100.10"]')
    return section.read(
        RdmaScript, "name interface rate_gbps", gids=tuple((int(index), address) for index, _, address in gids)
    )


def _unit(section: Section, period_s: float | None) -> UnitScript:
    unit = section.read(UnitScript, "name active sub result restarts restart delay_s main_pid exit_status")
    return replace(unit, restarts=unit.restarts.repeating(period_s))


def _reaction(section: Section) -> Reaction:
    listens = section.flag("listens", default=True)
    reaction = section.read(
        Reaction, "name group stop_s load_s leaks_gib gpu_gib tokens_per_s says",
        needs=section.section("needs").read(Needs, "flags without environment ended_pid reboot by_hand"),
        fault=section.choice("fault", ("", "capture", "spin", "exit", "spike"), ""),
    )  # fmt: skip
    return reaction if listens else replace(reaction, stop_s=None)


def _container(section: Section, reactions: dict[str, Reaction]) -> ContainerScript:
    name = section.text("name")
    keys = """
        image argv environment binds restart_count auto_remove tty shm_gib image_id network privileged devices ulimits
        labels memory_limit_gib
    """
    container = section.read(
        ContainerScript, keys, name=name, reaction=reactions.get(name, Reaction(name=name)),
        runs=tuple(_run(row) for row in section.sections("runs")),
        log=tuple(_log(row) for row in section.sections("log")),
        restart_policy=section.choice("restart", ("no", "always", "unless-stopped", "on-failure"), "no"),
    )  # fmt: skip
    if not container.runs:
        raise section.error("runs", "there must be at least one", "runs = [{ start = -7200 }]")
    return container


def _run(section: Section) -> Run:
    run = section.read(Run, "start_s=start end_s=end exit_code oom_killed")
    if run.end_s is not None and run.end_s <= run.start_s:
        raise section.error("end", f"{run.end_s} is not after the start, {run.start_s}")
    return run


def _log(section: Section) -> LogEntry:
    total = section.whole("total") if "total" in section else None
    entry = section.read(
        LogEntry, "at_s=at text every_s=every until_s=until first newline busy", total=total,
        last=section.whole("last", total or 0), stream=section.choice("stream", ("stdout", "stderr"), "stderr"),
    )  # fmt: skip
    if total is not None and entry.until_s is None:
        raise section.error("until", "a bar (total) needs the second at which it ends")
    if total is not None and entry.every_s is not None:
        raise section.error("every", "a bar (total) doesn't repeat")
    if entry.every_s is not None and entry.every_s <= 0:
        raise section.error("every", "must be more than 0")
    try:
        entry.text.format_map(SAMPLE_FIELDS)
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        hint = (
            nearest(str(error).strip("'"), SAMPLE_FIELDS) or f"fields are {', '.join(SAMPLE_FIELDS)}; write {{{{ for {{"
        )
        raise section.error("text", f"is no format string here: {error}", hint) from error
    return entry


SAMPLE_FIELDS: dict[str, float | str] = {
    "vllm_time": "", "sglang_time": "", "percent": 0.0, "bar": "", "done": 0, "total": 1, "elapsed": "", "left": "",
    "rate": 0.0, **dict.fromkeys(ENGINE_TRACKS, 0.0), "kv_percent": 0.0, "hit_percent": 0.0, "prompt_tokens": 0.0,
    "generation_tokens": 0.0, "available_gib": 0.0, "kv_tokens": 0.0,
}  # fmt: skip
"""Fields that a log line may use: timestamps as the engines write them, a bar's figures, and the engine's figures at
that second."""


def _process(section: Section, containers: dict[str, ContainerScript], boot_age_s: float) -> ProcessScript:
    container = section.text("container", "") or None
    if container and container not in containers:
        raise section.error("container", f"{container!r} is no container of this node", nearest(container, containers))
    keys = """
        pid argv parent_pid=parent user_id end_s=end delay_s=delay cgroup wait_channel resident_gib shared_gib
        swapped_gib gpu_gib gpu_name
    """
    return section.read(
        ProcessScript, keys, container=container, comm=section.text("comm", section.text("name"))[:15],
        state=section.choice("state", "RSDZTI", "S"), start_s=section.number("start", 20 - boot_age_s),
        gpu_kind=section.choice("gpu_kind", ("C", "G"), "C"),
    )  # fmt: skip


def _engine(section: Section, containers: dict[str, ContainerScript], period_s: float | None) -> EngineScript:
    name = section.text("name")
    if name not in containers:
        raise section.error("name", f"{name!r} is no container of this node", nearest(name, containers))
    keys = "model version port max_model_len prompt_tokens generation_tokens requests request_tokens metrics"
    return section.read(
        EngineScript, keys, name=name, kind=section.choice("kind", ("vllm", "sglang")),
        serves=tuple((row.number("start"), row.number("end", float("inf"))) for row in section.sections("serves")),
        tracks=section.tracks("tracks", ENGINE_TRACKS, period_s),
    )  # fmt: skip


def _kernel(section: Section, boot_age_s: float) -> KernelEntry:
    since_boot_s = section.optional_number("boot")
    at_s = section.number("at") if since_boot_s is None else since_boot_s - boot_age_s
    return section.read(KernelEntry, "text priority count over_s=over", at_s=at_s)


def _fault(section: Section, length_s: float) -> Fault:
    kind = FaultKind(section.choice("kind", list(FaultKind)))
    fault = section.read(Fault, "start_s=start end_s=end delay_s", kind=kind)
    if not 0 <= fault.start_s < fault.end_s <= length_s:
        raise section.error("end", f"a fault lies within 0 and {length_s} and ends after it starts")
    return fault
