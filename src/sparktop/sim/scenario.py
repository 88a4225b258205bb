"""Scenarios by name: what two simulated Sparks do, read from TOML in scenarios/ (its README.md has the keys).

A file may extend another beside it: tables are laid over one another key by key, lists of tables by `name`.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from sparktop.errors import ConfigError
from sparktop.sim import catalogue
from sparktop.sim.script import (
    ENGINE_TRACKS,
    NODE_TRACKS,
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
from sparktop.sim.sections import Section, merged, nearest, parse
from sparktop.sim.tracks import Track

__all__ = ["Scenario", "available", "load", "load_file"]

_DAY_S = 86_400.0
_PARTS = ("gpu", "desktop")
"""Of a machine: what may take an action in its own way."""


def available() -> tuple[tuple[str, str], ...]:
    """(name, title) of every scenario that ships, the healthy one first."""
    found = [(path.stem, str(parse(path).get("title", ""))) for path in _directory().glob("[!_]*.toml")]
    return tuple(sorted(found, key=lambda row: (row[0] != "healthy", row[0])))


def load(name: str) -> Scenario:
    """A scenario that ships, by name.

    Raises:
        ConfigError: there is none of that name, or its file has a fault.
    """
    names = [known for known, _ in available()]
    if name not in names:
        hint = nearest(name, names) or "sparktop demo --list shows what each one is"
        raise ConfigError(f"there is no scenario {name!r}; there are {', '.join(names)}", hint=hint)
    return load_file(_directory() / f"{name}.toml")


def load_file(path: Path) -> Scenario:
    """A scenario from a file; what it extends is looked up beside it.

    Raises:
        ConfigError: with the file, the key, and the nearest key that would be one.
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
    return Path(str(resources.files("sparktop.sim"))) / "scenarios"


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
    known = {container.name: container for container in containers}
    if repeat is Repeat.LOOP:
        for container in containers:
            if any(run.start_s >= 0 or run.end_s is not None for run in container.runs):
                hint = 'what begins or ends within the scenario needs repeat = "restart" or "hold"'
                raise node.error("containers", f"{container.name} begins or ends, and the scenario loops", hint)
    tracks = node.tracks("tracks", NODE_TRACKS)
    period_s = length_s if repeat is Repeat.LOOP else None
    engines = tuple(_engine(section, known, period_s) for section in node.sections("engines"))
    script = NodeScript(
        name=name,
        seed=node.whole("seed", 1),
        boot_age_s=boot_age_s,
        machine=_machine(node.section("machine"), name),
        tracks=_repeating(tracks, period_s),
        containers=containers,
        engines=engines,
        processes=tuple(_process(section, known, boot_age_s) for section in node.sections("processes")),
        kernel=tuple(_kernel(section, boot_age_s) for section in node.sections("kernel")),
        faults=tuple(_fault(section, length_s) for section in node.sections("faults")),
        interfaces=tuple(_interface(section, period_s) for section in node.sections("interfaces")),
        rdma=tuple(_rdma(section) for section in node.sections("rdma")),
        units=tuple(_unit(section, period_s) for section in node.sections("units")),
        models=tuple(_disk_model(section) for section in node.sections("models")),
        images=node.texts("images"),
        reactions=tuple(one for name, one in reactions.items() if name in _PARTS),
    )
    for name in reactions:
        if name not in (*known, *_PARTS):
            raise node.error("reactions", f"{name!r} is no container of this node, nor {' nor '.join(_PARTS)}")
    for name in script.images:
        if catalogue.image(name) is None:
            raise node.error("images", f"{name!r} is not in catalogue.toml")
    node.done()
    return script


def _disk_model(section: Section) -> DiskModel:
    name = section.text("name")
    if catalogue.model(name) is None:
        raise section.error("name", f"{name!r} is not in catalogue.toml")
    held = section.optional_number("held_gib")
    found = DiskModel(
        name=name, folder=section.text("folder", ""), held_bytes=None if held is None else int(held * 1024**3)
    )
    section.done()
    return found


def _machine(section: Section, name: str) -> Machine:
    default = Machine(hostname=name)
    machine = Machine(
        hostname=section.text("hostname", name),
        user=section.text("user", default.user),
        user_id=section.whole("user_id", default.user_id),
        total_kib=section.whole("total_kib", default.total_kib),
        driver=section.text("driver", default.driver),
        dgx=section.text("dgx", default.dgx),
        kernel=section.text("kernel", default.kernel),
        disk_gib=section.number("disk_gib", default.disk_gib),
        disk_free_gib=section.number("disk_free_gib", default.disk_free_gib),
        driver_installed=section.text("driver_installed", ""),
        next_kernel=section.text("next_kernel", ""),
        next_driver=section.flag("next_driver", default.next_driver),
        lingers=section.flag("lingers", default.lingers),
        removes_ipc=section.flag("removes_ipc", default.removes_ipc),
        graphical=section.flag("graphical", default.graphical),
    )
    section.done()
    return machine


def _interface(section: Section, period_s: float | None) -> InterfaceScript:
    mtu, up = section.track("mtu", 1500), section.track("up", 1)
    interface = InterfaceScript(
        name=section.text("name"),
        addresses=section.texts("addresses"),
        mtu=mtu if period_s is None else mtu.repeating(period_s),
        up=up if period_s is None else up.repeating(period_s),
        speed_mbps=section.whole("speed_mbps", 10_000),
    )
    section.done()
    return interface


def _rdma(section: Section) -> RdmaScript:
    gids = [gid.partition(" ") for gid in section.texts("gids")]
    if not all(index.isdecimal() and address for index, _, address in gids):
        raise section.error("gids", "must be a list of strings such as", 'gids = ["3 192.168.100.10"]')
    port = RdmaScript(
        name=section.text("name"),
        interface=section.text("interface"),
        rate_gbps=section.number("rate_gbps", 200.0),
        gids=tuple((int(index), address) for index, _, address in gids),
    )
    section.done()
    return port


def _unit(section: Section, period_s: float | None) -> UnitScript:
    restarts = section.track("restarts", 0)
    unit = UnitScript(
        name=section.text("name"),
        active=section.text("active", "active"),
        sub=section.text("sub", "running"),
        result=section.text("result", "success"),
        restarts=restarts if period_s is None else restarts.repeating(period_s),
        restart=section.text("restart", "no"),
        delay_s=section.number("delay_s", 0.1),
        main_pid=section.whole("main_pid") if "main_pid" in section else None,
        exit_status=section.whole("exit_status") if "exit_status" in section else None,
    )
    section.done()
    return unit


def _reaction(section: Section) -> Reaction:
    needs, default = section.section("needs"), Reaction(name="")
    reaction = Reaction(
        name=section.text("name"),
        group=section.text("group", ""),
        stop_s=None if not section.flag("listens", default=True) else section.number("stop_s", default.stop_s),
        load_s=section.number("load_s", default.load_s),
        leaks_gib=section.number("leaks_gib", 0.0),
        gpu_gib=section.optional_number("gpu_gib"),
        tokens_per_s=section.optional_number("tokens_per_s"),
        needs=Needs(
            flags=needs.texts("flags"),
            without=needs.texts("without"),
            environment=needs.texts("environment"),
            reboot=needs.flag("reboot"),
            by_hand=needs.flag("by_hand"),
        ),
        fault=section.choice("fault", ("", "capture", "spin", "exit", "spike"), ""),
        says=section.text("says", ""),
    )
    needs.done()
    section.done()
    return reaction


def _container(section: Section, reactions: dict[str, Reaction]) -> ContainerScript:
    name = section.text("name")
    container = ContainerScript(
        name=name,
        reaction=reactions.get(name, Reaction(name=name)),
        image=section.text("image"),
        argv=section.texts("argv"),
        runs=tuple(_run(row) for row in section.sections("runs")),
        log=tuple(_log(row) for row in section.sections("log")),
        environment=section.texts("environment"),
        binds=section.texts("binds"),
        restart_policy=section.choice("restart", ("no", "always", "unless-stopped", "on-failure"), "no"),
        restart_count=section.whole("restart_count", 0),
        auto_remove=section.flag("auto_remove"),
        tty=section.flag("tty"),
        shm_gib=section.number("shm_gib", 16.0),
        image_id=section.text("image_id", ""),
        network=section.text("network", "host"),
        privileged=section.flag("privileged"),
        devices=section.texts("devices"),
        ulimits=section.texts("ulimits"),
        labels=section.texts("labels"),
        memory_limit_gib=section.number("memory_limit_gib", 0.0),
    )
    if not container.runs:
        raise section.error("runs", "there must be at least one", "runs = [{ start = -7200 }]")
    section.done()
    return container


def _run(section: Section) -> Run:
    run = Run(
        start_s=section.number("start"),
        end_s=section.optional_number("end"),
        exit_code=section.whole("exit_code", 0),
        oom_killed=section.flag("oom_killed"),
    )
    if run.end_s is not None and run.end_s <= run.start_s:
        raise section.error("end", f"{run.end_s} is not after the start, {run.start_s}")
    section.done()
    return run


def _log(section: Section) -> LogEntry:
    total = section.whole("total") if "total" in section else None
    entry = LogEntry(
        at_s=section.number("at"),
        text=section.text("text"),
        every_s=section.optional_number("every"),
        until_s=section.optional_number("until"),
        total=total,
        first=section.whole("first", 0),
        last=section.whole("last", total or 0),
        newline=section.flag("newline"),
        busy=section.flag("busy"),
        stream=section.choice("stream", ("stdout", "stderr"), "stderr"),
    )
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
    section.done()
    return entry


SAMPLE_FIELDS: dict[str, float | str] = {
    "vllm_time": "", "sglang_time": "", "percent": 0.0, "bar": "", "done": 0, "total": 1, "elapsed": "", "left": "",
    "rate": 0.0, **dict.fromkeys(ENGINE_TRACKS, 0.0), "kv_percent": 0.0, "hit_percent": 0.0, "prompt_tokens": 0.0,
    "generation_tokens": 0.0, "available_gib": 0.0, "kv_tokens": 0.0,
}  # fmt: skip
"""What a log line may name: times as the engines write them, a bar's figures, and the engine's own at that second."""


def _process(section: Section, containers: dict[str, ContainerScript], boot_age_s: float) -> ProcessScript:
    container = section.text("container", "") or None
    if container and container not in containers:
        raise section.error("container", f"{container!r} is no container of this node", nearest(container, containers))
    name = section.text("name")
    process = ProcessScript(
        pid=section.whole("pid"),
        comm=section.text("comm", name)[:15],
        argv=section.texts("argv"),
        parent_pid=section.whole("parent", 1),
        user_id=section.whole("user_id", 0),
        state=section.choice("state", "RSDZTI", "S"),
        container=container,
        start_s=section.number("start", 20 - boot_age_s),
        end_s=section.optional_number("end"),
        delay_s=section.number("delay", 0.0),
        cgroup=section.text("cgroup", ""),
        wait_channel=section.text("wait_channel", "") or None,
        resident_gib=section.track("resident_gib", 0.1),
        shared_gib=section.track("shared_gib", 0.0),
        swapped_gib=section.track("swapped_gib", 0.0),
        gpu_gib=section.track("gpu_gib") if "gpu_gib" in section else None,
        gpu_kind=section.choice("gpu_kind", ("C", "G"), "C"),
        gpu_name=section.text("gpu_name", ""),
    )
    section.done()
    return process


def _repeating(tracks: dict[str, Track], period_s: float | None) -> dict[str, Track]:
    return tracks if period_s is None else {name: track.repeating(period_s) for name, track in tracks.items()}


def _engine(section: Section, containers: dict[str, ContainerScript], period_s: float | None) -> EngineScript:
    name = section.text("name")
    if name not in containers:
        raise section.error("name", f"{name!r} is no container of this node", nearest(name, containers))
    defaults = EngineScript(
        name=name, kind="vllm", model="", version="", port=0, max_model_len=32768, serves=(), tracks={}
    )
    engine = EngineScript(
        name=name,
        kind=section.choice("kind", ("vllm", "sglang")),
        model=section.text("model"),
        version=section.text("version"),
        port=section.whole("port"),
        max_model_len=section.whole("max_model_len", defaults.max_model_len),
        serves=tuple((row.number("start"), row.number("end", float("inf"))) for row in section.sections("serves")),
        tracks=_repeating(section.tracks("tracks", ENGINE_TRACKS), period_s),
        prompt_tokens=section.number("prompt_tokens", 0.0),
        generation_tokens=section.number("generation_tokens", 0.0),
        requests=section.number("requests", 0.0),
        request_tokens=section.number("request_tokens", defaults.request_tokens),
        metrics=section.flag("metrics", default=True),
    )
    section.done()
    return engine


def _kernel(section: Section, boot_age_s: float) -> KernelEntry:
    since_boot_s = section.optional_number("boot")
    entry = KernelEntry(
        at_s=section.number("at") if since_boot_s is None else since_boot_s - boot_age_s,
        text=section.text("text"),
        priority=section.whole("priority", 6),
        count=section.whole("count", 1),
        over_s=section.number("over", 0.0),
    )
    section.done()
    return entry


def _fault(section: Section, length_s: float) -> Fault:
    fault = Fault(
        start_s=section.number("start"),
        end_s=section.number("end"),
        kind=FaultKind(section.choice("kind", list(FaultKind))),
        delay_s=section.number("delay_s", 0.0),
    )
    if not 0 <= fault.start_s < fault.end_s <= length_s:
        raise section.error("end", f"a fault lies within 0 and {length_s} and ends after it starts")
    section.done()
    return fault
