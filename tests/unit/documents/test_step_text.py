"""How acts read: exact where that is wanted, never with a secret or a control."""

from __future__ import annotations

from tests.table import over

from sparktop.documents.step_text import abort_means, step_lines, typed_lines
from sparktop.model.operation import Command, DockerCall, Expect, ImagePull, Operation, Privilege, Signal, Transfer
from sparktop.model.request import Request, Risk
from sparktop.operate.acts.arrivals import AwaitBack, AwaitGone
from sparktop.operate.acts.guard_order import GuardOrder
from sparktop.operate.acts.memory import AwaitMemory
from sparktop.operate.acts.readiness import AwaitReady
from sparktop.operate.acts.remote import Remote
from sparktop.operate.acts.request import SmokeTest
from sparktop.operate.acts.serving import AwaitServing
from sparktop.operate.run.run_text import figures_text
from sparktop.operate.step.act import Act
from sparktop.operate.step.plan import Plan, Step
from sparktop.operate.step.run import Run, StepRun
from sparktop.operate.step.step_result import StepState

GIB = 1024**3
ID = "3f1c9a04d2be".ljust(64, "0")


def lines(act: Act, *secrets: str) -> tuple[str, ...]:
    step = Step(id="x", title="x", node="spark1", act=act)
    request = Request(action="x", nodes=("spark1",))
    return step_lines(step, Plan(request=request, title="x", risk=Risk.SAFE, steps=(step,), secrets=secrets))


@over(
    "act, wanted",
    [
        (Remote(operations=(Command(argv=("echo", "a b", "$(x)")),)), "echo 'a b' '$(x)'"),
        (Remote(operations=(Command(argv=("sync",), privilege=Privilege.ROOT),)), "sudo sync"),
        (Remote(operations=(Command(argv=("x",), environment={"TOKEN": "hunter2hunter2"}),)), "TOKEN=<masked> x"),
        (Remote(operations=(Command(argv=("hf",), environment={"HF_HOME": "/srv/hf", "HF_HUB_OFFLINE": "0"}),)),
         "HF_HOME=/srv/hf HF_HUB_OFFLINE=0 hf"),
        (Remote(operations=(Command(argv=("hf",), environment={"HF_TOKEN": "123", "HF_ENDPOINT": "http://a:b@c"}),)),
         "HF_TOKEN=<masked> HF_ENDPOINT=<masked> hf"),
        (Remote(operations=(DockerCall(method="POST", path=f"/containers/{ID}/stop", query={"t": "60"}),)),
         "docker: POST /containers/3f1c9a04d2be/stop?t=60"),
        (Remote(operations=(DockerCall(method="POST", path="/a", body={"Env": ["HF_TOKEN=hunter2hunter2"]}),)),
         'docker: POST /a  {"Env": ["HF_TOKEN=<masked>"]}'),
        (Remote(operations=(DockerCall(method="POST", path="/a", body={"Env": ["A"] * 200}),)),
         "docker: POST /a  { 1 field, 1009 characters }"),
        (Remote(operations=(Expect(path=f"/containers/{ID}/json", equals={"State.Running": True}),)),
         "docker: GET /containers/3f1c9a04d2be/json must say State.Running = true"),
        (Remote(operations=(Signal(pid=7, started_ticks=1, privilege=Privilege.ROOT),)),
         "sudo /usr/bin/kill -s TERM 7   # if it is still that process"),
        (Remote(operations=(ImagePull(image="nvcr.io/x:1"),)), "docker pull nvcr.io/x:1"),
        (Remote(operations=(Transfer(command=Command(argv=("hf", "download", "a/b")), grows="~", key="k"),)),
         "hf download a/b"),
        (AwaitMemory(target_bytes=108 * GIB), "until 108.0 GiB are available, and stay so for 5 s"),
        (AwaitGone(pids=(4, 5)), "until pid 4, 5 and every GPU process of the container are gone"),
        (AwaitReady(name="vllm"), "until vllm answers"),
        (AwaitServing(name="vllm"), "vllm still runs, not restarted since it was ready, and answers"),
        (GuardOrder(container_id=""), "the probe's guard is disarmed"),
        (GuardOrder(container_id=ID, container_name="v", floor_bytes=4 * GIB),
         ("the probe kills v (3f1c9a04d2be) when less than 4.0 GiB are available; "
          "it stays armed while the console runs")),
    ],
)  # fmt: skip
def test_an_act_as_a_line(act: Act, wanted: str) -> None:
    assert lines(act) == (wanted,)


NAMED = Expect(path=f"/containers/{ID}/json", equals={"Name": "/vllm"})


@over(
    "call, wanted",
    [
        (DockerCall(method="POST", path=f"/containers/{ID}/stop", query={"t": "2"}), ["docker stop -t 2 vllm"]),
        (DockerCall(method="POST", path=f"/containers/{ID}/start"), ["docker start vllm"]),
        (DockerCall(method="POST", path=f"/containers/{ID}/kill", query={"signal": "KILL"}), ["docker kill vllm"]),
        (DockerCall(method="POST", path=f"/containers/{ID}/kill", query={"signal": "HUP"}),
         ["docker kill -s HUP vllm"]),
        (DockerCall(method="POST", path=f"/containers/{ID}/rename", query={"name": "old"}), ["docker rename vllm old"]),
        (DockerCall(method="DELETE", path=f"/containers/{ID}", query={"force": "true", "v": "true"}),
         ["docker rm -f -v vllm"]),
        (DockerCall(method="POST", path=f"/containers/{ID}/update",
                    body={"RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3}}),
         ["docker update --restart=on-failure:3 vllm"]),
        (DockerCall(method="POST", path="/containers/create", query={"name": "new"}, body={"Image": "vllm/vllm:1"}),
         ["docker create --name new … vllm/vllm:1"]),
        (DockerCall(method="GET", path=f"/containers/{ID}/json"), []),
        (DockerCall(method="POST", path=f"/containers/{ID}/wait"), []),
        (DockerCall(method="POST", path="/containers/other/start"), ["docker start other"]),
        (DockerCall(method="POST", path="/networks/n/connect"), ["docker: POST /networks/n/connect"]),
        (Command(argv=("dd", "if={content}", "of=/home/me/keys", "oflag=append"), content="a\n"),
         ["dd if=… of=/home/me/keys oflag=append"]),
        (Command(argv=("/usr/bin/install", "-T", "{content}", "/etc/x y"), content="a\n", privilege=Privilege.ROOT),
         ["sudo install -T … '/etc/x y'"]),
        (Command(argv=("/usr/bin/cmp", "{content}", "/etc/x"), content="a\n"), []),
        (Command(argv=("grep", "-qxF", "a", "/etc/x")), []),
    ],
)  # fmt: skip
def test_a_call_as_a_person_types_it(call: Operation, wanted: list[str]) -> None:
    step = Step(id="x", title="x", node="spark1", act=Remote(operations=(NAMED, call)))
    plan = Plan(request=Request(action="x", nodes=("spark1",)), title="x", risk=Risk.SAFE, steps=(step,))
    assert list(typed_lines(step, plan)) == wanted


def test_a_container_that_a_later_step_waits_for_is_called_by_its_name() -> None:
    start = Step(id="start", title="x", node="spark1",
                 act=Remote(operations=(DockerCall(method="POST", path=f"/containers/{ID}/start"),)))  # fmt: skip
    ready = Step(id="ready", title="x", node="spark1", act=AwaitReady(name="vllm", container_id=ID))
    request = Request(action="x", nodes=("spark1",))
    plan = Plan(request=request, title="x", risk=Risk.SAFE, steps=(start, ready))
    assert typed_lines(start, plan) == ("docker start vllm",)


def test_a_container_is_called_by_the_name_that_it_has_by_then_on_its_node() -> None:
    made = [
        Step(id=f"make@{node}", title="x", node=node, act=Remote(operations=(
            DockerCall(method="POST", path="/containers/create", query={"name": f"{name}-next"}, saves="NEW"),)))
        for node, name in (("spark1", "pair-0"), ("spark2", "pair-1"))
    ]  # fmt: skip
    swaps = [
        Step(id=f"swap@{node}", title="x", node=node, act=Remote(operations=(
            DockerCall(method="POST", path="/containers/{NEW}/rename", query={"name": name}),
            DockerCall(method="POST", path="/containers/{NEW}/start"))))
        for node, name in (("spark1", "pair-0"), ("spark2", "pair-1"))
    ]  # fmt: skip
    back = Step(id="back", title="x", node="spark1", act=Remote(operations=(
        DockerCall(method="POST", path="/containers/{NEW}/stop", query={"t": "2"}),)))  # fmt: skip
    request = Request(action="x", nodes=("spark1", "spark2"))
    plan = Plan(request=request, title="x", risk=Risk.SAFE, steps=(*made, *swaps), rollback=(back,))
    assert typed_lines(swaps[0], plan) == ("docker rename pair-0-next pair-0", "docker start pair-0")
    assert typed_lines(swaps[1], plan) == ("docker rename pair-1-next pair-1", "docker start pair-1")
    assert typed_lines(back, plan) == ("docker stop -t 2 pair-0",)


def test_a_name_that_is_no_word_is_quoted_and_a_secret_masked() -> None:
    named = Expect(path=f"/containers/{ID}/json", equals={"Name": "/$(x) y"})
    act = Remote(operations=(named, DockerCall(method="POST", path=f"/containers/{ID}/start"),
                             Command(argv=("login", "--password", "hunter2hunter2"))))  # fmt: skip
    step = Step(id="x", title="x", node="spark1", act=act)
    plan = Plan(request=Request(action="x", nodes=("spark1",)), title="x", risk=Risk.SAFE, steps=(step,))
    assert typed_lines(step, plan) == ("docker start '$(x) y'", "login --password '<masked>'")


def test_undoing_is_told_as_such() -> None:
    act = Remote(operations=(Command(argv=("a",)),), undo=(Command(argv=("b",)),))
    assert lines(act) == ("a", "if it fails: b")


def test_exact_secrets_and_controls_are_in_no_line() -> None:
    act = Remote(operations=(Command(argv=("x", "--y", "geheim12\x1b]0;t\x07", "\u202e")),))
    (line,) = lines(act, "geheim12")
    assert "geheim" not in line
    assert line.isprintable()


def run_at(act: Act) -> Run:
    step = Step(id="x", title="Stop it", node="spark1", act=act)
    plan = Plan(request=Request(action="x", nodes=("spark1",)), title="x", risk=Risk.SAFE, steps=(step,))
    return Run(id="1", plan=plan, steps=(StepRun(step=step, state=StepState.RUNNING),))


@over(
    "act, words",
    [
        (Remote(operations=()), "completes or reverts this step"),
        (AwaitMemory(target_bytes=1), "the wait ends at once"),
        (SmokeTest(engine="x", floor_bytes=1), "ends at once"),
        (AwaitBack(boot_id="x"), "keeps booting"),
    ],
)
def test_what_an_abort_means_depends_on_the_step(act: Act, words: str) -> None:
    assert words in abort_means(run_at(act))


def test_getting_out_of_a_fetch_ends_it_and_keeps_what_has_come() -> None:
    said = abort_means(run_at(Remote(operations=(ImagePull(image="vllm:1"),))))
    assert "stops on spark1" in said
    assert "next try" in said
    assert "completes or reverts" not in said


def test_getting_out_of_a_plan_that_is_all_or_nothing_leads_back_once_something_is_done() -> None:
    fetch = Step(id="get", title="Pull", node="spark1", act=Remote(operations=(ImagePull(image="vllm:1"),)))
    make = Step(id="make", title="Make it", node="spark1", act=Remote(operations=(Command(argv=("a",)),)))
    wait = Step(id="ready", title="Wait", node="spark1", act=AwaitMemory(target_bytes=1))
    plan = Plan(
        request=Request(action="x", nodes=("spark1",)),
        title="x",
        risk=Risk.SAFE,
        steps=(fetch, make, wait),
        rollback=(make,),
        is_all_or_nothing=True,
    )

    def means(*states: StepState) -> str:
        steps = tuple(StepRun(step=step, state=state) for step, state in zip(plan.steps, states, strict=True))
        return abort_means(Run(id="1", plan=plan, steps=steps))

    waiting, running, done = StepState.WAITING, StepState.RUNNING, StepState.DONE
    assert "rolls back" not in means(running, waiting, waiting)
    assert "rolls back" in means(done, running, waiting)
    assert "rolls back" in means(done, done, running)
    assert "stay" not in means(done, done, running)


def test_figures_are_told_by_what_changed() -> None:
    before = {"available_gib": 22.9, "swap_used_gib": 0.0, "cache_gib": 9.04, "engine": "vllm serving"}
    after = {"available_gib": 22.9, "swap_used_gib": 0.0, "cache_gib": 1.0, "engine": "vllm ready"}
    assert (
        figures_text(before, after)
        == "available 22.9 → 22.9 GiB, cache 9.0 → 1.0 GiB, engine vllm serving → vllm ready"
    )
    assert figures_text({"available_gib": 22.9}, {}) == "available 22.9 GiB"
    assert figures_text({}, after) == ""
