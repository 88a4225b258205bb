"""Parity: what differs between the nodes, what of it matters, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from sparktop.bringup.access import memlock_ask
from sparktop.bringup.card import Card, CheckInputs, Nodes, Outcome, Scope, by_hand, card, passed, unknown, warning
from sparktop.bringup.machine import header_ask, python_ask, smi_ask
from sparktop.bringup.memory import guards_ask, parse_guards, swap_text
from sparktop.checks.node_facts import COMPONENTS
from sparktop.dataclass import dataclass
from sparktop.model.survey import Ask, FileText, Output
from sparktop.operate.launch.gates.docker import toolkit_ask
from sparktop.operate.launch.inputs.docker import (
    image_ask,
    image_on,
    image_parity,
    images_ask,
    info,
    info_ask,
    serving_images,
)

Value = Callable[[CheckInputs, str], str | None]
"""A component's value on a node, as it is shown; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One thing that should be the same on all nodes."""

    name: str
    value: Value
    matters: str
    """What a difference does; empty: it is worth knowing, and harms nothing by itself."""
    remedy: str = ""


def _package_ask(node: str) -> Output:
    argv = ("dpkg-query", "-W", "-f", "${Version}", "dgx-spark-ota-update-meta")
    return Output(node=node, argv=argv)


def _command_line_ask(node: str) -> FileText:
    return FileText(node=node, path="/proc/cmdline", limit_bytes=16384)


def _text_of(ask: Callable[[str], Ask]) -> Value:
    def value(seen: CheckInputs, node: str) -> str | None:
        text = seen.text(ask(node))
        return text.strip() if text is not None else None

    return value


def _version_of(component: str) -> Value:
    def value(seen: CheckInputs, node: str) -> str | None:
        view = seen.view(node)
        return COMPONENTS[component][1](view) or None if view is not None else None

    return value


def _vbios(seen: CheckInputs, node: str) -> str | None:
    row = (seen.text(smi_ask(node)) or "").splitlines()[:1]
    return row[0].rpartition(",")[2].strip() if row and row[0].count(",") == 2 else None


def _docker(seen: CheckInputs, node: str) -> str | None:
    version = info(seen.survey, node).get("ServerVersion")
    return str(version) if version else None


def _toolkit(seen: CheckInputs, node: str) -> str | None:
    text = seen.text(toolkit_ask(node))
    return text.splitlines()[0].rpartition(" ")[2] if text and text.strip() else None


def _guards(seen: CheckInputs, node: str) -> str | None:
    guards = parse_guards(seen.text(guards_ask(node)))
    return None if guards is None else " and ".join(guards) or "none"


_LOCAL_WORDS = ("root=", "BOOT_IMAGE=", "initrd=", "resume=")
"""Of the kernel's command line: they differ between machines by their nature."""


def _command_line(seen: CheckInputs, node: str) -> str | None:
    text = seen.text(_command_line_ask(node))
    return None if text is None else " ".join(word for word in text.split() if not word.startswith(_LOCAL_WORDS))


_CACHES = (
    "import os\n"
    "for one in '~/.cache/vllm/torch_compile_cache', '~/.cache/flashinfer', '~/.cache/triton', '~/.triton/cache':\n"
    "    if os.path.isdir(os.path.expanduser(one)) and os.listdir(os.path.expanduser(one)):\n"
    "        print(one)\n"
)


def _caches_ask(node: str) -> Output:
    return Output(node=node, argv=("python3", "-I", "-S", "-c", _CACHES))


def _caches(seen: CheckInputs, node: str) -> str | None:
    ask = _caches_ask(node)
    return ", ".join((seen.text(ask) or "").split()) or "none" if seen.has_answer(ask) else None


def _headers(seen: CheckInputs, node: str) -> str | None:
    ask = header_ask(seen, node)
    answer = seen.survey.answers.get(ask) if ask is not None else None
    return {0: "there", 1: "missing"}.get(answer.code if answer is not None and answer.code is not None else -1)


COMPONENTS_OF_PARITY = (
    Component(
        name="driver",
        value=_version_of("driver"),
        matters="collectives and CUDA graphs of one don't fit the other",
        remedy="update DGX OS on all, to one release",
    ),
    Component(
        name="kernel",
        value=_version_of("kernel"),
        matters="memory, network driver and NVIDIA module differ with it",
        remedy="update DGX OS on all, and reboot all",
    ),
    Component(name="DGX OS", value=_version_of("DGX OS"), matters=""),
    Component(name="VBIOS", value=_vbios, matters=""),
    Component(
        name="dgx-spark-ota-update-meta",
        value=_text_of(_package_ask),
        matters="limits, lldpd and the kexec setting come with it",
        remedy="sudo apt install dgx-spark-ota-update-meta, on all",
    ),
    Component(name="Docker", value=_docker, matters=""),
    Component(name="container toolkit", value=_toolkit, matters=""),
    Component(
        name="swap",
        value=swap_text,
        matters="a rank that swaps stalls the others",
        remedy="the same on all: sudo swapoff -a, or a swap file of one size",
    ),
    Component(
        name="out-of-memory daemon",
        value=_guards,
        matters="it ends a rank on one node alone, which the others wait for",
        remedy="the same on all: sudo systemctl disable --now earlyoom",
    ),
    Component(
        name="locked memory",
        value=_text_of(memlock_ask),
        matters="RDMA fails on the node with the smaller limit",
        remedy="sudo apt install nvidia-spark-limits, on all",
    ),
    Component(
        name="kernel command line",
        value=_command_line,
        matters="kho=off on one node alone spoils a comparison",
        remedy="the same package on all: sudo apt install nvidia-spark-grub-kho",
    ),
    Component(
        name="JIT caches",
        value=_caches,
        matters="one rank compiles, and the other waits silently for minutes",
        remedy="copy the folder to the other node, or wait: it is no hang",
    ),
    Component(
        name="Python headers",
        value=_headers,
        matters="Triton compiles on one node, and the other waits 601 s",
        remedy="sudo apt install python3-dev, on all",
    ),
)


def _asks(seen: CheckInputs, nodes: Nodes) -> Iterator[Ask]:
    for node in nodes:
        yield from (smi_ask(node), _package_ask(node), info_ask(node), toolkit_ask(node))
        yield from (guards_ask(node), memlock_ask(node), _command_line_ask(node), python_ask(node))
        yield _caches_ask(node)
        if (ask := header_ask(seen, node)) is not None:
            yield ask


IMAGES_AT_MOST = 8
"""Of one name on all nodes, those compared."""


def _common_images(seen: CheckInputs, nodes: Nodes) -> tuple[str, ...]:
    listed = [serving_images(seen.survey, node) or {} for node in nodes]
    return tuple(sorted(set.intersection(*map(set, listed))))[:IMAGES_AT_MOST]


def _images_asks(seen: CheckInputs, nodes: Nodes) -> Iterator[Ask]:
    yield from map(images_ask, nodes)
    for name in _common_images(seen, nodes):
        yield from (ask for node in nodes if (ask := image_ask(node, name)) is not None)


def _images(seen: CheckInputs, nodes: Nodes) -> Outcome:
    if silent := [node for node in nodes if serving_images(seen.survey, node) is None]:
        return unknown(f"not listed on {' and '.join(silent)}")
    names = _common_images(seen, nodes)
    for name in names:
        images = [image for node in nodes if (image := image_on(seen.survey, node, name)) is not None]
        if len(images) < len(nodes):
            return unknown(f"{name} was not read on all")
        if any(image_parity(first, second).is_problem for first, second in combinations(images, 2)):
            builds = ", ".join(f"{image.node} {image.short_id}" for image in images)
            pull = f"docker pull {name}   # on {' and on '.join(nodes)}"
            return warning(f"{name} is of another build: {builds}", by_hand("Pull it anew on all", pull))
    return passed(f"{', '.join(names)} of one build" if names else "no serving image is on all")


def _look_at(component: Component) -> Callable[[CheckInputs, Nodes], Outcome]:
    def look(seen: CheckInputs, nodes: Nodes) -> Outcome:
        values: Mapping[str, str | None] = {node: component.value(seen, node) for node in nodes}
        known = {node: value for node, value in values.items() if value is not None}
        if len(set(known.values())) > 1:
            found = ", ".join(f"{node} {value}" for node, value in known.items())
            if not _is_problem(component, tuple(known.values())):
                return passed(f"differs, which harms nothing by itself: {found}")
            remedy = (by_hand("Make them equal", component.remedy),) if component.remedy else ()
            return warning(f"{found}: {component.matters}", *remedy)
        if len(known) < len(nodes):
            silent = " and ".join(node for node, value in values.items() if value is None)
            return unknown(f"not known on {silent}")
        return passed(f"{next(iter(known.values()), '')} on all")

    return look


def _is_problem(component: Component, values: Sequence[str]) -> bool:
    """Whether the difference matters: by the check that live rules and launches have of it, where there is one."""
    if component.name not in COMPONENTS:
        return bool(component.matters)
    judge = COMPONENTS[component.name][0]
    return any(judge((first, second)).is_problem for first, second in combinations(values, 2))


def _key(name: str) -> str:
    return name.lower().replace(" ", "-")


_IMAGES = card("parity.images", look=_images, asks=_images_asks, scope=Scope.FLEET)
_COMPONENTS = tuple(
    Card(
        id=f"parity.{_key(component.name)}",
        title=f"{component.name[0].upper()}{component.name[1:]}",
        looks_at=f"{component.name}, on all nodes",
        why=f"Where it differs, {component.matters}." if component.matters else "Worth knowing when a pair misbehaves.",
        sources=("capetron/gb10-cluster-bench", "anakronox/spark-fleet-updates"),
        look=_look_at(component),
        asks=_asks,
        scope=Scope.FLEET,
        root="to change it" if component.remedy else "",
    )
    for component in COMPONENTS_OF_PARITY
)
CARDS = (*_COMPONENTS, _IMAGES)
