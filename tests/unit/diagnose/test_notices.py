"""What the links say of themselves, worst first."""

from __future__ import annotations

from dataclasses import replace

from sparktop.diagnose.notices import notices, with_likely_hints
from sparktop.model.event import Severity
from sparktop.model.fleet import Intervention, Link, LinkState, NodeView, Reach, Trend
from sparktop.model.telemetry import Collector, CollectorState, HostFacts, Memory, Sample

GIB = 1024**3


def node(name: str = "spark1", available_gib: float = 50.0, state: LinkState = LinkState.LIVE) -> NodeView:
    memory = Memory(total_bytes=122 * GIB, available_bytes=int(available_gib * GIB), free_bytes=0)
    sample = Sample(sequence=1, boot_s=5000.0, wall_s=1.0, interval_s=1.0, memory=memory)
    return NodeView(name=name, link=Link(state=state, reason="no answer to TCP"), sample=sample)


def said(*nodes: NodeView, **fingerprints: str) -> list[str]:
    keyed = [replace(node, link=replace(node.link, host_key_fingerprint=fingerprints.get(node.name))) for node in nodes]
    return [f"{notice.severity}: {notice.text}" for notice in notices(keyed)]


def test_a_healthy_pair_has_nothing_to_say() -> None:
    assert said(node("a"), node("b")) == []


def test_what_is_wrong_on_a_node_is_for_rules_to_say() -> None:
    falling = replace(node(available_gib=0.4), trend=Trend(bytes_per_s=-6.1e9, time_to_empty_s=0.1))
    stuck = Collector(name="nvml", state=CollectorState.STUCK, detail="no answer for 12 s")
    assert said(replace(falling, collectors={"nvml": stuck})) == []


def test_a_lost_node_keeps_its_trajectory() -> None:
    lost = replace(node(available_gib=0.4, state=LinkState.LOST), trend=Trend(bytes_per_s=-5.5e9, time_to_empty_s=0.1))
    (text,) = said(lost)
    assert text == "critical: lost: no answer to TCP · last seen with 0.4 GiB available, falling 5.1 GiB/s"
    starved = replace(lost, link=Link(state=LinkState.STALE, reach=Reach.SSH_SILENT, reason="TCP answers, SSH doesn't"))
    (text,) = said(starved)
    assert text.startswith("critical: host up, SSH silent, last seen with 0.4 GiB available, falling 5.1 GiB/s · TCP")


REBOOT = Intervention(node="spark1", action="reboot", began_wall_s=1.0, is_under_way=True)


def silent(name: str, since_s: float, reach: Reach = Reach.NO_HOST) -> NodeView:
    link = Link(state=LinkState.LOST, since_s=since_s, reach=reach, reason="no answer to TCP", hint="Check its power.")
    return replace(node(name), link=link)


def test_nodes_that_are_lost_at_once_are_not_both_gone() -> None:
    both = (silent("a", 100.0), silent("b", 104.0, Reach.UNTESTED))
    assert [notice.text for notice in notices(both)] == [
        "host gone like all others: check your own network first · last seen with 50.0 GiB available",
        "lost like all others: check your own network first · last seen with 50.0 GiB available",
    ]
    assert {view.link.hint for view in with_likely_hints(both, ())} == {
        "All nodes were lost at once: check your own network, then the switch."
    }
    unseen = tuple(replace(view, sample=None) for view in both)  # as where the operator's own network is down
    assert {notice.text.partition(":")[2] for notice in notices(unseen)} == {" check your own network first"}
    apart = ((silent("a", 100.0), silent("b", 160.0)), (silent("a", 1.0), node("b")), (silent("a", 1.0),))
    starved = (silent("a", 100.0), silent("b", 100.0, Reach.SSH_SILENT))
    for nodes in (*apart, starved):
        assert not any("all others" in notice.text for notice in notices(nodes))
        assert with_likely_hints(nodes, ()) == nodes


def test_a_node_that_a_console_reboots_is_no_outage() -> None:
    nodes = (silent("spark1", 100.0), silent("spark2", 101.0))
    first, second = notices(nodes, (REBOOT,))
    assert (first.node, first.severity) == ("spark2", Severity.CRITICAL)
    assert first.text.startswith("host gone, last seen"), "only the other one is rebooted"
    assert second.text == "your reboot is in progress: it doesn't answer until it has booted"
    assert with_likely_hints(nodes, (REBOOT,))[0].link.hint.startswith("A sparktop console reboots it")
    over = replace(REBOOT, is_under_way=False)
    assert "all others" in notices(nodes, (over,))[0].text
    answering = (node("spark1"),)
    assert notices(answering, (REBOOT,)) == ()
    assert with_likely_hints(answering, (REBOOT,)) == answering


def test_twins_are_warned_of() -> None:
    one = replace(node("a"), facts=HostFacts(hostname="a", boot_id="1", machine_id_digest="m"))
    other = replace(node("b"), facts=HostFacts(hostname="b", boot_id="2", machine_id_digest="m"))
    assert "same SSH host key" in said(one, other, a="SHA256:x", b="SHA256:x")[0]
    assert "same machine id" in said(one, other, a="SHA256:x", b="SHA256:y")[0]
    same = replace(other, facts=HostFacts(hostname="b", boot_id="1", machine_id_digest="m"))
    assert "one machine" in said(one, same, a="SHA256:x", b="SHA256:x")[0]


def test_the_worst_comes_first() -> None:
    warned = replace(node("a"), warnings=("its host key is new",))
    told = said(warned, node("b", state=LinkState.LOST))
    assert [text.split(":")[0] for text in told] == ["critical", "warning"]
