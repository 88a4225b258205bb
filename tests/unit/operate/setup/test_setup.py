"""Groups, sudo rules and addresses of a new Spark: what is run, where it is refused, and what the real tools say."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.bringup_support import view
from tests.pictures_support import picture
from tests.plan_golden import compare_plan
from tests.table import over
from tests.unit.diagnose.rules.pair_support import fabric
from tests.unit.operate.machine.machine_support import FREE, SPARK, ids, operations, planned, refused

from sparktop.model.fleet import NodeView
from sparktop.model.operation import Command
from sparktop.model.request import Request
from sparktop.model.survey import Privileges
from sparktop.model.telemetry import Interface
from sparktop.operate.setup import addresses, group, root_rules
from sparktop.operate.step.plan import Plan, Refusal

NOT_MEMBERS = {"id -nG spark": "spark adm sudo\n"}


def bare(name: str, *, only: str = "") -> NodeView:
    """A cabled Spark whose cable has no address, or none on one interface."""
    made = fabric(int(name[-1]))
    interfaces = tuple(
        replace(one, addresses=()) if one.name.endswith("s0f0np0") and only in one.name else one
        for one in made.interfaces
    )
    return view(name, network=replace(made, interfaces=interfaces))


def test_the_user_joins_a_group_on_both_nodes_and_leaves_it_again() -> None:
    request = Request(action="join-group", nodes=("spark1", "spark2"), options={"group": "docker"})
    plan = planned(group, request, picture(view(), view("spark2")), privileges=FREE, outputs=NOT_MEMBERS)
    compare_plan("join-group", plan)
    command, _ = operations(plan, "join-docker@spark1")
    assert isinstance(command, Command)
    assert command.argv == ("/usr/sbin/usermod", "-aG", "docker", "spark")
    assert isinstance(plan, Plan)
    assert [step.undoes for step in plan.rollback] == [("join-docker@spark1",), ("join-docker@spark2",)]


@over(
    "options, host, outputs, reason",
    [
        ({"group": "sudo"}, {}, NOT_MEMBERS, "not to sudo"),
        ({}, {}, {"id -nG spark": "spark docker\n"}, "in the group docker already"),
        ({}, {"user": "-o evil"}, NOT_MEMBERS, "which user"),
        ({}, {"user": "root"}, NOT_MEMBERS, "root needs no group"),
        ({}, {}, {}, "are not known"),
    ],
)
def test_a_group_is_refused(
    options: dict[str, str], host: dict[str, Any], outputs: dict[str, str], reason: str
) -> None:
    request = Request(action="join-group", nodes=("spark1",), options=options)
    assert reason in refused(planned(group, request, picture(view(host=host)), privileges=FREE, outputs=outputs))


def test_root_rules_are_exact_lines_that_visudo_accepts(tmp_path: Path) -> None:
    request = Request(action="permit-root", nodes=("spark1",))
    plan = planned(root_rules, request, picture(view()), privileges=SPARK)
    compare_plan("permit-root", plan)
    assert ids(plan) == ["check-rules", "permit-root"]
    (check,) = operations(plan, "check-rules")
    assert isinstance(check, Command)
    assert "spark ALL=(root) NOPASSWD: /usr/bin/systemctl reboot\n" in check.content
    assert all(" NOPASSWD: /usr/" in line for line in check.content.splitlines())
    visudo = shutil.which("visudo") or "/usr/sbin/visudo"
    if not Path(visudo).exists():
        pytest.skip("visudo is not here: apt-get install sudo")
    file = tmp_path / "rules"
    file.write_text(check.content)
    out = subprocess.run([visudo, "-cf", str(file)], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr


def test_where_root_needs_no_password_nothing_is_permitted() -> None:
    request = Request(action="permit-root", nodes=("spark1",))
    assert "asks for no password" in refused(planned(root_rules, request, picture(view()), privileges=FREE))
    nobody = Privileges(user="spark", sudo="denied")
    assert "allow this for spark" in refused(planned(root_rules, request, picture(view()), privileges=nobody))


def generated(root: Path, text: str, interface: str) -> str:
    """What the real netplan makes of a file, for one interface."""
    folder = root / "etc/netplan"
    folder.mkdir(parents=True)
    (folder / "40.yaml").write_text(text)
    (folder / "40.yaml").chmod(0o600)
    out = subprocess.run(["netplan", "generate", "--root-dir", str(root)], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    return (root / f"run/systemd/network/10-netplan-{interface}.network").read_text()


def test_bare_cables_get_a_network_for_each_half_that_netplan_accepts(tmp_path: Path) -> None:
    request = Request(action="set-addresses", nodes=("spark1", "spark2"))
    plan = planned(addresses, request, picture(bare("spark1"), bare("spark2")), privileges=FREE)
    compare_plan("set-addresses", plan)
    assert isinstance(plan, Plan)
    assert ids(plan) == [f"{step}@{node}" for node in request.nodes for step in ("write", "apply", "stay")]
    files = {step.node: operations(plan, step.id)[0] for step in plan.steps if step.id.startswith("write")}
    for node, number in (("spark1", 10), ("spark2", 11)):
        command = files[node]
        assert isinstance(command, Command)
        for third in (100, 101):
            assert f"addresses: [192.168.{third}.{number}/24]" in command.content
        if shutil.which("netplan") is None:
            continue
        made = generated(tmp_path / node, command.content, "enp1s0f0np0")
        assert f"Address=192.168.100.{number}/24" in made
    if shutil.which("netplan") is None:
        pytest.skip("netplan is not here (apt-get install netplan.io): its files were not checked by it")


def test_addresses_are_tried_with_a_return_armed_and_kept_once_they_are_seen() -> None:
    request = Request(action="set-addresses", nodes=("spark1", "spark2"))
    plan = planned(addresses, request, picture(bare("spark1"), bare("spark2")), privileges=FREE)
    tried, kept = "/run/netplan/40-sparktop-cable.yaml", "/etc/netplan/40-sparktop-cable.yaml"
    arm, apply = (one.argv for one in operations(plan, "apply@spark1") if isinstance(one, Command))
    assert arm[0] == "/usr/bin/systemd-run"
    assert {"--on-active=120", "--timer-property=AccuracySec=1s", tried} < set(arm)
    assert apply == ("/usr/sbin/netplan", "apply")
    stay = [one.argv for one in operations(plan, "stay@spark1") if isinstance(one, Command)]
    assert [argv[0].rpartition("/")[2] for argv in stay] == [
        *("test", "ip", "ip", "systemctl", "systemctl", "test", "install", "rm", "netplan")
    ]
    assert (stay[6][-1], stay[7][-1]) == (kept, tried)


def test_addresses_that_work_stay() -> None:
    request = Request(action="set-addresses", nodes=("spark1", "spark2"))
    assert "joins them" in refused(planned(addresses, request, picture(view(), view("spark2")), privileges=FREE))
    plan = planned(addresses, request, picture(bare("spark1", only="enP2p1"), view("spark2")), privileges=FREE)
    assert isinstance(plan, Plan)
    (write, _) = operations(plan, "write@spark1")
    assert isinstance(write, Command)
    assert "enP2p1s0f0np0" in write.content
    assert "enp1s0f0np0:" not in write.content
    assert "addresses: [10.0.1.10/24]" in write.content  # in the network that the other node has there
    assert not [step for step in plan.steps if step.node == "spark2"]


@over(
    "first, files, reason",
    [
        (view("spark1", network=fabric(1, up=False)), {}, "no cable is up"),
        (view("spark1", network=None), {}, "not been read"),
        (bare("spark1"), {addresses.FILE: "network:\n"}, "is there already"),
    ],
)
def test_addresses_are_refused(first: NodeView, files: dict[str, str], reason: str) -> None:
    request = Request(action="set-addresses", nodes=("spark1", "spark2"))
    made = planned(addresses, request, picture(first, bare("spark2")), privileges=FREE, files=files)
    assert reason in refused(made)


def test_networks_in_use_elsewhere_are_left_alone() -> None:
    office = fabric(1)
    interfaces = tuple(
        replace(one, addresses=("192.168.100.7/23",)) if one.name == "enP7s7" else one
        for one in bare("spark1").interfaces
    )
    first = view("spark1", network=replace(office, interfaces=interfaces))
    request = Request(action="set-addresses", nodes=("spark1", "spark2"))
    plan = planned(addresses, request, picture(first, bare("spark2")), privileges=FREE)
    (write, _) = operations(plan, "write@spark1")
    assert isinstance(write, Command)
    assert "192.168.102.10/24" in write.content
    assert "192.168.100." not in write.content


def heard(**ends: tuple[str, str]) -> str:
    """lldpctl's answer: by interface the other machine's name and its port."""
    rows = [
        {"name": own, "chassis": [{"name": [{"value": machine}]}], "port": [{"descr": [{"value": port}]}]}
        for own, (machine, port) in ends.items()
    ]
    return json.dumps({"lldp": [{"interface": rows}]})


def cabled(name: str, *ports: int) -> NodeView:
    """A Spark whose ports have a link and no address."""
    names = [f"en{half}p1s0f{port}np{port}" for port in ports for half in ("", "P2")]
    made = fabric(1)
    return view(name, network=replace(made, interfaces=tuple(Interface(name=one, is_up=True) for one in names)))


def many(views: Sequence[NodeView], lldp: Mapping[str, str | None]) -> Plan | Refusal:
    request = Request(action="set-addresses", nodes=tuple(one.name for one in views))
    outputs = {f"{node}: lldpctl": text for node, text in lldp.items()}
    return planned(addresses, request, picture(*views), privileges=FREE, outputs=outputs)


def given(made: Plan | Refusal) -> dict[str, list[str]]:
    """The interfaces in each network, as "node port half" by network."""
    assert isinstance(made, Plan), made
    networks: dict[str, list[str]] = {}
    for one in made.differences:
        interface, _, node = one.name.partition(" of ")
        assert one.after is not None
        networks.setdefault(one.after.rpartition(".")[0], []).append(f"{node} {interface}")
    return networks


RING = ("spark1", "spark2", "spark3")


def ring_lldp() -> dict[str, str | None]:
    answers: dict[str, str | None] = {}
    for number, node in enumerate(RING):
        after, before = RING[(number + 1) % 3], RING[number - 1]
        answers[node] = heard(
            enp1s0f0np0=(f"{after}-host", "enp1s0f1np1"), enp1s0f1np1=(f"{before}-host", "enp1s0f0np0")
        )
    return answers


def test_a_ring_of_three_gets_six_networks_of_two(tmp_path: Path) -> None:
    made = many([cabled(node, 0, 1) for node in RING], ring_lldp())
    compare_plan("set-addresses-ring", made)
    networks = given(made)
    assert len(networks) == 6
    assert sorted(networks["192.168.100"]) == ["spark1 enp1s0f0np0", "spark2 enp1s0f1np1"]
    assert all(len(ends) == 2 for ends in networks.values())
    assert isinstance(made, Plan)
    last = {one.name.partition(" of ")[2]: one.after for one in made.differences}
    assert [str(last[node]).partition("/")[0].rpartition(".")[2] for node in RING] == ["10", "11", "12"]
    if shutil.which("netplan") is None:
        pytest.skip("netplan is not here (apt-get install netplan.io): its files were not checked by it")
    (write, _) = operations(made, "write@spark3")
    assert "Address=192.168.103.12/24" in generated(tmp_path, write.content, "enP2p1s0f1np1")


def test_four_on_a_switch_get_two_networks_of_four() -> None:
    names = (*RING, "spark4")
    lldp = {node: heard(enp1s0f0np0=("crs804", f"qsfp56-dd-{number}")) for number, node in enumerate(names)}
    networks = given(many([cabled(node, 0) for node in names], lldp))
    assert {name: len(ends) for name, ends in networks.items()} == {"192.168.100": 4, "192.168.101": 4}


def test_what_one_has_in_a_ring_stays_and_gives_its_network_to_the_other() -> None:
    first = cabled("spark1", 0, 1)
    assert first.network is not None
    kept = replace(first.network.interfaces[0], addresses=("10.5.0.1/24",))
    set_by_hand = replace(first, network=replace(first.network, interfaces=(kept, *first.network.interfaces[1:])))
    networks = given(many([set_by_hand, cabled("spark2", 0, 1), cabled("spark3", 0, 1)], ring_lldp()))
    assert networks["10.5.0"] == ["spark2 enp1s0f1np1"]


@over(
    "lldp, reason",
    [
        (dict.fromkeys(RING), "spark1, spark2 and spark3 hear no neighbour by LLDP"),
        ({**ring_lldp(), "spark3": heard(enp1s0f0np0=("sw", "1"))}, "neither a ring nor all on one switch"),
    ],
)
def test_what_is_not_known_is_not_guessed(lldp: dict[str, str | None], reason: str) -> None:
    assert reason in refused(many([cabled(node, 0, 1) for node in RING], lldp))


def test_two_of_a_ring_get_addresses_on_the_cable_that_joins_them() -> None:
    made = many([cabled(node, 0, 1) for node in RING[:2]], {node: ring_lldp()[node] for node in RING[:2]})
    assert sorted(given(made)["192.168.100"]) == ["spark1 enp1s0f0np0", "spark2 enp1s0f1np1"]
    assert len(given(made)) == 2


def test_more_than_eight_are_refused() -> None:
    views = [cabled(f"spark{number}", 0) for number in range(1, 10)]
    assert "two to 8 Sparks" in refused(many(views, {}))
