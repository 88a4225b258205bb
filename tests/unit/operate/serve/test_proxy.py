"""Exposing an engine: where its configuration goes, what it passes to, what is refused, and how it is taken away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests import pictures_support as made
from tests import restart_support as restarts
from tests.plan_golden import compare
from tests.planner_support import asks_of, plan_of
from tests.relaunch_support import golden, possible, refusal
from tests.table import over

from sparktop.model.engine import Engine, EngineKind
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Command
from sparktop.model.request import Request
from sparktop.model.survey import (
    ROUNDS_AT_MOST,
    Answer,
    FileText,
    Output,
    Privileges,
    PrivilegesQuestion,
    Question,
    Survey,
)
from sparktop.operate.acts import checks
from sparktop.operate.acts.remote import Remote
from sparktop.operate.serve import proxy
from sparktop.operate.serve.proxy_config import HEAD, Proxy, Site, Upstream, site_text
from sparktop.operate.step.plan import Plan, Refusal
from sparktop.operate.step.run import Run

NAME = "llm.example.org"
KEY = "sk-canary-51c2.d+"
SITE = f"/etc/nginx/sites-available/{NAME}"
LINK = f"/etc/nginx/sites-enabled/{NAME}"
KEY_FILE = f"/etc/nginx/sparktop/{NAME}.key"
FREE = Privileges(user="spark", sudo="free", docker="open")
SITES = "/etc/nginx/sites-enabled\n/etc/nginx/conf.d\n"


def spark(name: str = "spark1", address: str = "192.168.0.50", **more: Any) -> NodeView:
    network = made.network()
    fast, slow = network.interfaces
    return restarts.spark(
        name, network=replace(network, interfaces=(fast, replace(slow, addresses=(f"{address}/24",)))), **more
    )


def gateway() -> NodeView:
    return spark("gateway", "192.168.0.2", engines=())


def planned(picture: FleetState, *, files: dict[str, str] | None = None, **more: Any) -> Plan | Refusal:
    """What is planned for `from` on `on`; `outputs` by the program's name."""
    options = {"from": "spark1", "on": "gateway", **more.pop("options", {})}
    options = {name: value for name, value in options.items() if value}
    outputs = {"which": "/usr/sbin/nginx\n", "pgrep": "812\n", "ls": SITES, "grep": "", **more.pop("outputs", {})}
    nodes = tuple(dict.fromkeys((*options.get("from", "").split(), *filter(None, (options.get("on"),)))))
    options = {"name": NAME, **options}
    target = more.pop("target", options.pop("engine", ""))
    request = Request(action="expose", nodes=nodes, target=target, options=options, secret=more.pop("secret", KEY))
    rights = more.pop("privileges", FREE)
    known = {"/proc/net/if_inet6": "fe80 1\n", **(files or {})}

    def answer(ask: Question) -> Answer:
        match ask:
            case PrivilegesQuestion():
                return Answer(value=rights)
            case Output():
                return Answer(value=outputs[ask.argv[0]])
            case FileText():
                text = known.get(ask.path)
                return Answer(problem="permission denied") if text == "denied" else Answer(value=text)
        raise AssertionError(ask)

    survey = Survey()
    for _ in range(ROUNDS_AT_MOST):
        questions = [ask for ask in asks_of(proxy, request, picture, survey) if ask not in survey.answers]
        if not questions:
            return plan_of(proxy, request, picture, survey)
        survey = Survey(answers={**survey.answers, **{ask: answer(ask) for ask in questions}})
    raise AssertionError("it asks again and again")


def commands(plan: Plan | Refusal, step_id: str) -> list[Command]:
    step = next(step for step in (*possible(plan).steps, *possible(plan).rollback) if step.id == step_id)
    assert isinstance(step.act, Remote)
    return [one for one in (*step.act.operations, *step.act.undo) if isinstance(one, Command)]


def text_of(plan: Plan | Refusal) -> str:
    (text,) = possible(plan).files.values()
    return text


def test_nginx_on_another_host() -> None:
    plan = planned(made.picture(spark(), gateway()))
    golden("expose", plan)
    assert "server 192.168.0.50:8000;" in text_of(plan), "not on the cable between Sparks"


@over("kind", list(Proxy))
def test_the_configuration(kind: Proxy) -> None:
    upstreams = (Upstream(address="192.168.0.50", port=8000), Upstream(address="192.168.0.51", port=8000))
    compare(f"operate/expose_{kind}", site_text(Site(name=NAME, upstreams=upstreams), kind, f"/etc/{kind}/sparktop"))


def test_the_key_is_in_one_private_file_alone() -> None:
    plan = possible(planned(made.picture(spark(), gateway())))
    assert KEY not in repr(plan) + text_of(plan)
    assert KEY not in repr(Run(id="x", plan=plan))
    holding = [one for step in plan.steps if isinstance(step.act, Remote) for one in step.act.operations
               if isinstance(one, Command) and "canary" in one.content]  # fmt: skip
    assert [one.argv[:3] + one.argv[-1:] for one in holding] == [("/usr/bin/install", "-m", "0600", KEY_FILE)]


def test_two_sparks_and_a_name_on_one_of_them() -> None:
    picture = made.picture(spark(), spark("spark2", "192.168.0.51"))
    plan = planned(picture, options={"from": "spark1 spark2", "on": "spark1"})
    assert "server 127.0.0.1:8000;" in text_of(plan)
    assert "server 192.168.0.51:8000;" in text_of(plan)
    assert possible(plan).nodes == ("spark1",)


def test_an_address_is_enough() -> None:
    plan = planned(made.picture(gateway()), options={"from": "", "upstream": "10.9.8.7:30000", "listen": "8080"})
    assert "server 10.9.8.7:30000;" in text_of(plan)
    assert "listen 8080;" in text_of(plan)
    assert f"http://{NAME}:8080/v1" in possible(plan).outcome


def test_without_folders_of_sites_and_without_ipv6() -> None:
    plan = planned(
        made.picture(spark(), gateway()), outputs={"ls": "/etc/nginx/conf.d\n"}, files={"/proc/net/if_inet6": ""}
    )
    assert list(possible(plan).files) == [f"/etc/nginx/conf.d/{NAME}.conf"]
    assert "[::]" not in text_of(plan)
    assert not [one for one in commands(plan, "write") if "/usr/bin/ln" in one.argv]


def test_printing_asks_nothing_of_a_proxy() -> None:
    plan = planned(made.picture(spark()), options={"on": "", "print": "yes"}, secret="")
    assert possible(plan).steps == ()
    assert text_of(plan).startswith(HEAD)


def test_caddy() -> None:
    plan = planned(
        made.picture(spark(), gateway()), options={"with": "caddy"}, files={"/etc/caddy/Caddyfile": ":80 {\n}\n"}
    )
    golden("expose_caddy_plan", plan)
    assert "check" not in [step.id for step in possible(plan).steps], "it answers by TLS: asked by its name, from here"
    again = planned(
        made.picture(spark(), gateway()),
        options={"with": "caddy"},
        files={"/etc/caddy/Caddyfile": "import /etc/caddy/sparktop/*.caddy\n"},
    )
    assert not [one for one in commands(again, "write") if one.content and one.argv[-1] == "/etc/caddy/Caddyfile"]


def test_what_certbot_has_edited_gets_a_new_key_alone() -> None:
    edited = text_of(planned(made.picture(spark(), gateway()))) + "listen 443 ssl; # managed by Certbot\n"
    plan = planned(made.picture(spark(), gateway()), files={SITE: edited, KEY_FILE: "denied"})
    assert {one.content for one in commands(plan, "write") if one.argv[-1] == SITE} == {edited}
    ids = [step.id for step in possible(plan).steps]
    assert ids == ["write", "reload", "old-key"], "the old key is kept until the new one is in force"
    moved = planned(made.picture(spark(address="192.168.0.77"), gateway()), files={SITE: edited})
    assert "certbot has edited" in refusal(moved).reason


def loopback(**more: Any) -> Engine:
    return replace(made.engine(), **more)


LOCAL = ("python3", "-m", "sglang.launch_server", "--port", "30000")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param({"secret": ""}, "a key is required", id="no key"),
        pytest.param({"secret": "short"}, "a key is 8 to 512", id="a key that nobody could send"),
        pytest.param({"outputs": {"which": ""}}, "nginx is not installed on gateway", id="no nginx"),
        pytest.param({"outputs": {"pgrep": ""}}, "nginx is installed on gateway and doesn't run", id="stopped"),
        pytest.param({"files": {SITE: "server {}\n"}}, "did not write it", id="somebody else's site"),
        pytest.param({"privileges": Privileges(user="spark", sudo="denied")}, "sudo", id="no root"),
        pytest.param(
            {"outputs": {"grep": f"{LINK}: upstream sparktop_llm_example_org {{\n"
                                 "/etc/nginx/sites-enabled/old:  upstream sparktop_llm_example_org {\n"}},
            "/etc/nginx/sites-enabled/old on gateway defines the upstream", id="a doubled upstream",
        ),
        pytest.param({"options": {"engine": "nope"}}, "no engine serves on spark1", id="another engine"),
        pytest.param({"options": {"listen": "x"}}, "invalid literal", id="a port that is none"),
    ],
)  # fmt: skip
def test_refused(more: dict[str, Any], reason: str) -> None:
    found = refusal(planned(made.picture(spark(), gateway()), **more))
    assert reason in found.reason
    assert KEY not in repr(found)


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        pytest.param(loopback(argv=("vllm", "serve", "x", "--host", "127.0.0.1")), "on 127.0.0.1 alone", id="by flag"),
        pytest.param(loopback(argv=LOCAL, kind=EngineKind.SGLANG), "on 127.0.0.1 alone", id="SGLang's default"),
    ],
)
def test_an_engine_that_only_its_own_machine_reaches(engine: Engine, reason: str) -> None:
    picture = made.picture(spark(engines=(engine,)), gateway())
    found = refusal(planned(picture))
    assert reason in found.reason
    assert "--on spark1" in found.remedies[0]
    assert possible(planned(picture, options={"on": "spark1"})).steps


def test_several_addresses_are_a_question() -> None:
    view = spark()
    assert view.network is not None
    _, slow = view.network.interfaces
    two = replace(view.network, interfaces=(slow, replace(slow, name="wlan0", addresses=("172.20.0.9/24",))))
    picture = made.picture(replace(view, network=two), gateway())
    assert "server 192.168.0.50:8000;" in text_of(planned(picture)), "the one in the proxy's network"
    apart = made.picture(replace(view, network=two), spark("gateway", "10.44.0.1", engines=()))
    assert "several addresses (192.168.0.50, 172.20.0.9)" in refusal(planned(apart)).reason


def test_another_site_of_the_same_name_is_told() -> None:
    rows = f"/etc/nginx/conf.d/x.conf:    server_name {NAME} www.{NAME};\n"
    plan = possible(planned(made.picture(spark(), gateway()), outputs={"grep": rows}))
    assert any("/etc/nginx/conf.d/x.conf on gateway serves" in warning for warning in plan.warnings)


def test_removal() -> None:
    files = {SITE: f"{HEAD}{NAME} --on HOST --remove\n", KEY_FILE: "denied"}
    golden("expose_remove", planned(made.picture(gateway()), options={"from": "", "remove": "yes"}, files=files))
    gone = planned(made.picture(gateway()), options={"from": "", "remove": "yes"})
    assert "is not exposed on gateway" in refusal(gone).reason


@over(
    "answers, is_well, words",
    [
        ((401, 401, 200, 404, 200), True, "401 without a key"),
        ((403, 403, 200, 404, 200), True, "403 without a key"),
        ((200, 200, 200, 404, 200), False, "whoever reaches it can use it"),
        ((401, 200, 200, 404, 200), False, "a wrong key"),
        ((401, 401, 401, 404, 200), False, "the engine itself has another one"),
        ((401, 401, 502, 404, 502), False, "does not reach the engine"),
        ((401, 401, 200, 200, 200), False, "more than /v1/"),
        ((401, 401, 200, 404, 503), True, "/health answers 503"),
        ("ConnectError: refused", False, "doesn't answer: ConnectError"),
    ],
)
def test_what_the_answers_say(answers: tuple[int, ...] | str, is_well: bool, words: str) -> None:
    result = checks.judged(answers, NAME)
    assert result.ok is is_well
    assert words in result.detail
