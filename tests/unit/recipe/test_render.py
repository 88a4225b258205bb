"""A recipe for the nodes it is launched on: argv and containers of each rank, and what can't be one."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.recipe_support import order, pair, recipe, seat, seats_for, shipped
from tests.table import over

from sparktop.cmdline import engine_argv as flags
from sparktop.model.engine import EngineKind
from sparktop.model.recipe import Executor, Order
from sparktop.recipe.container_spec import CannotRender, NodeContext
from sparktop.recipe.parameters import resolve
from sparktop.recipe.read.recipe_file import read
from sparktop.recipe.render.host_config import body
from sparktop.recipe.render.render import container_name, render

SGLANG: dict[str, Any] = {
    "engine": EngineKind.SGLANG,
    "container": "lmsysorg/sglang:v0.5.12",
    "command": "python3 -m sglang.launch_server --model-path {model} --port {port} --tp {tensor_parallel}",
    "defaults": {"port": 30000, "tensor_parallel": 1},
}
TWO: dict[str, Any] = {
    "min_nodes": 1,
    "max_nodes": 2,
    "executor": Executor.NATIVE,
    "defaults": {"port": 8000, "gpu_memory_utilization": 0.8, "tensor_parallel": 2},
    "command": "vllm serve {model} -tp {tensor_parallel} --gpu-memory-utilization {gpu_memory_utilization}",
}


def test_what_the_operator_sets_counts_over_the_recipe_whatever_the_name_is_spelled() -> None:
    made = render(resolve(order({"mem_fraction_static": "0.5", "port": "9000"})), [seat()])
    assert made.head.argv == ("vllm", "serve", "org/model", "--port", "9000", "--gpu-memory-utilization", "0.5")
    assert made.port == 9000
    assert made.values["gpu_memory_utilization"] == "0.5"


def test_of_two_spellings_that_the_operator_sets_the_last_counts() -> None:
    own = {"gpu_memory_utilization": 0.7, "mem_fraction_static": 0.7}
    values = {"gpu_memory_utilization": "0.5", "mem_fraction_static": "0.6"}
    made = render(resolve(order(values, defaults=own, command="vllm serve {model}")), [seat()])
    assert flags.value_of(made.head.argv, "gpu-memory-utilization") == "0.6"


def test_a_recipe_that_calls_it_container_name_can_be_launched_under_another() -> None:
    own = {"container_name": "mine", "port": 8000, "gpu_memory_utilization": 0.8}
    assert render(resolve(order(defaults=own)), [seat()]).head.container.name == "mine"
    assert render(resolve(order({"name": "mine-2"}, defaults=own)), [seat()]).head.container.name == "mine-2"


def test_a_computed_share_stands_where_the_recipe_has_its_own() -> None:
    assert flags.value_of(render(resolve(order()), [seat()], share=0.61).head.argv, "gpu-memory-utilization") == "0.61"
    fixed = order(command="vllm serve {model} --gpu-memory-utilization 0.9 --port {port}")
    assert render(resolve(fixed), [seat()], share=0.61).head.argv[3:5] == ("--gpu-memory-utilization", "0.61")
    silent = order(command="vllm serve {model}", defaults={})
    assert render(resolve(silent), [seat()], share=0.61).head.argv[3:] == ("--gpu-memory-utilization", "0.61")
    sglang = order(**SGLANG)
    assert render(resolve(sglang), [seat()], share=0.61).head.argv[-2:] == ("--mem-fraction-static", "0.61")


def test_a_share_that_is_the_recipe_s_own_stays_as_it_was_typed() -> None:
    one = shipped("gpt-oss-120b")
    for share, said in ((None, "0.70"), (0.7, "0.70"), (0.65, "0.65")):
        made = render(resolve(Order(recipe=one)), seats_for(one), share=share)
        assert flags.value_of(made.head.argv, "gpu-memory-utilization") == said
    typed = render(resolve(order({"gpu_memory_utilization": ".70"})), [seat()], share=0.7)
    assert flags.value_of(typed.head.argv, "gpu-memory-utilization") == ".70"


def test_a_parameter_that_the_command_does_not_name_becomes_its_flag() -> None:
    made = render(resolve(order({"enforce_eager": "true", "max_num_seqs": "4"})), [seat()])
    assert made.head.argv[-3:] == ("--enforce-eager", "--max-num-seqs", "4")
    off = order({"enforce_eager": "false"}, command="vllm serve {model} --enforce-eager", defaults={})
    assert render(resolve(off), [seat()]).head.argv == ("vllm", "serve", "org/model")


@over("model, revision", [("org/model", "abc"), ("org/other", "")])
def test_a_recipes_revision_is_of_its_own_model(model: str, revision: str) -> None:
    values = resolve(order({"model": model}, model_revision="abc"))
    assert (values.model, values.revision, values.problem) == (model, revision, None)


@over(
    "name, said",
    [
        ("gpu_memory_utilisation", "did you mean gpu_memory_utilization?"),
        ("tensor_paralel", "did you mean tensor_parallel?"),
        ("api_key", "VLLM_API_KEY"),
    ],
)
def test_an_unknown_parameter_is_refused_with_the_nearest(name: str, said: str) -> None:
    with pytest.raises(CannotRender) as caught:
        resolve(order({name: "x"})).checked()
    assert said in " ".join((caught.value.reason, *caught.value.remedies))


@over(
    "name, value",
    [
        ("port", "0"), ("port", "70000"), ("ray_port", "16379"), ("port", "8000 --trust-remote-code"),
        ("gpu_memory_utilization", "1.5"), ("gpu_memory_utilization", "nan"), ("max_model_len", "lots"),
        ("max_model_len", "--trust-remote-code"), ("tensor_parallel", "0"), ("model", ""), ("model", "a b"),
        ("model", "-x/y"), ("model", "../../etc/passwd"), ("container", "a b"), ("served_model_name", "a\nb"),
        ("served_model_name", "\x1b[2J"), ("name", ""), ("name", "../../etc"), ("name", "bad/name"),
        ("container", "a:b:c:d"), ("container", "/a"),
    ],
)  # fmt: skip
def test_a_value_that_can_not_be_one_is_refused(name: str, value: str) -> None:
    with pytest.raises(CannotRender):
        render(resolve(order({name: value})), [seat()])


def test_a_recipe_without_a_command_has_its_defaults_for_flags() -> None:
    made = render(
        resolve(order(
            command="",
            defaults={"port": 8001, "tensor_parallel": 1, "enforce_eager": True, "enable_prefix_caching": False,
                      "language_model_only": True, "speculative_config": '{"method":"mtp"}'},
        )),
        [seat()],
    )  # fmt: skip
    assert made.head.argv == (
        "vllm", "serve", "org/model", "--port", "8001", "--tensor-parallel-size", "1", "--enforce-eager",
        "--no-enable-prefix-caching", "--language-model-only", "--speculative-config", '{"method":"mtp"}',
    )  # fmt: skip
    given = {"port": 30000, "gpu_memory_utilization": 0.7, "max_model_len": 4096, "tensor_parallel": 1}
    sglang = render(resolve(order(**{**SGLANG, "command": "", "defaults": given})), [seat()])
    assert sglang.head.argv == (
        "python3", "-m", "sglang.launch_server", "--model-path", "org/model", "--port", "30000",
        "--mem-fraction-static", "0.7", "--context-length", "4096", "--tp-size", "1", "--enable-metrics",
    )  # fmt: skip


def test_a_model_in_the_cache_is_named_by_its_repository_and_not_asked_for_again() -> None:
    there = seat(model_path="/home/me/.cache/huggingface/hub/models--org--model/snapshots/abc")
    made = render(resolve(order(secrets={"HF_TOKEN": "hf_secretsecret"}, model_revision="abc")), [there])
    container = made.head.container
    assert [(each.source, each.target, each.is_read_only) for each in container.mounts] == [
        ("/home/me/.cache/huggingface", "/root/.cache/huggingface", False)
    ]
    assert container.environment == {"HF_HUB_OFFLINE": "1"}
    assert made.head.argv[2] == "org/model"
    assert flags.value_of(made.head.argv, "revision") == "abc"
    assert made.served_name == "org/model"


def test_a_model_of_its_own_folder_is_mounted_read_only_and_answers_to_the_recipes_name() -> None:
    made = render(resolve(order()), [seat(model_path="/data/models/my model-fp8/")])
    assert [(each.source, each.target, each.is_read_only) for each in made.head.container.mounts] == [
        ("/data/models/my model-fp8", "/models/model", True)
    ]
    assert made.head.argv[2] == "/models/model"
    assert made.served_name == "org/model"
    assert flags.value_of(made.head.argv, "served-model-name") == "org/model"
    with pytest.raises(CannotRender, match="Docker can't mount"):
        render(resolve(order()), [seat(model_path="/data/a:b")])


def test_a_model_that_is_not_there_yet_gets_the_hub_and_its_token() -> None:
    wanted = Order(recipe=recipe(), secrets={"HF_TOKEN": "hf_secretsecret"}, hub="http://127.0.0.1:9")
    container = render(resolve(wanted), [seat()]).head.container
    assert container.environment == {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_TOKEN": "hf_secretsecret"}
    assert container.secret_names == ("HF_TOKEN",)
    assert "hf_secretsecret" not in repr(container)


def test_a_container_that_runs_as_another_user_has_the_cache_where_no_home_is_needed() -> None:
    container = render(resolve(order(options={"user": "1000:1000"})), [seat()]).head.container
    assert container.mounts[0].target == "/cache/huggingface"
    assert container.environment["HF_HOME"] == "/cache/huggingface"
    assert container.user == "1000:1000"


def test_secrets_come_from_the_operator_into_the_environment_and_into_no_argv() -> None:
    wanted = order(
        {"port": "8001"},
        {"MY_KEY": "sk-verysecret", "VLLM_API_KEY": "sk-other-secret"},
        environment={"EXTRA_TOKEN": "Bearer $MY_KEY", "PLAIN": "{port}", "JSON": '{"a": 1}'},
    )
    container = render(resolve(wanted), [seat()]).head.container
    assert container.environment["EXTRA_TOKEN"] == "Bearer sk-verysecret"
    assert container.environment["PLAIN"] == "8001"
    assert container.environment["JSON"] == '{"a": 1}'
    assert set(container.secret_names) == {"EXTRA_TOKEN", "VLLM_API_KEY"}
    made = body(container)
    assert "secret" not in json.dumps([made["Cmd"], made["Labels"]])
    with pytest.raises(CannotRender, match=r"EXTRA_TOKEN from your \$MY_KEY") as caught:
        render(resolve(order(environment={"EXTRA_TOKEN": "$MY_KEY"})), [seat()])
    assert "export MY_KEY" in caught.value.remedies[0]


def test_a_hub_token_that_is_not_there_is_left_out_and_not_passed_on_where_it_is_not_needed() -> None:
    named = {"HF_TOKEN": "${HF_TOKEN}", "HUGGING_FACE_HUB_TOKEN": "$HF_TOKEN"}
    assert render(resolve(order(environment=named)), [seat()]).head.container.environment == {}
    both = render(resolve(order(secrets={"HF_TOKEN": "hf_secretsecret"}, environment=named)), [seat()]).head.container
    assert set(both.secret_names) == set(named)
    there = seat(model_path="/home/me/.cache/huggingface/hub/models--org--model/snapshots/abc")
    quiet = render(resolve(order(secrets={"HF_TOKEN": "hf_secretsecret"}, environment=named)), [there]).head.container
    assert quiet.environment == {"HF_HUB_OFFLINE": "1"}


@over(
    "more, said",
    [
        ({"command": "vllm serve {model} --api-key abc"}, "VLLM_API_KEY"),
        ({"command": "vllm serve {model} --hf-token abc"}, "HF_TOKEN"),
        ({**SGLANG, "command": "python3 -m sglang.launch_server --model-path {model} --api-key x"}, "reverse proxy"),
    ],
)
def test_a_secret_on_the_command_line_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(CannotRender) as caught:
        render(resolve(order(**more)), [seat()])
    assert said in caught.value.remedies[0]


def test_native_ranks_are_told_of_one_another_and_have_their_own_nodes_names() -> None:
    made = render(resolve(order(**TWO)), pair())
    head, other = made.ranks
    tail = ("--nnodes", "2", "--node-rank", "0", "--master-addr", "192.168.100.10", "--master-port", "29501")
    assert head.argv[-8:] == tail
    assert other.argv[-9:] == (*tail[:3], "1", *tail[4:], "--headless")
    assert (head.serves, other.serves) == (True, False)
    assert head.container.name == other.container.name == "vllm-small"
    for rank, own in zip(made.ranks, pair(), strict=True):
        environment = rank.container.environment
        assert environment["VLLM_HOST_IP"] == own.fabric_ip
        assert environment["NCCL_IB_HCA"] == ",".join(own.hcas)
        assert {environment[name] for name in environment if "IFNAME" in name} == {own.fabric_interface}
        assert environment["MASTER_ADDR"] == "192.168.100.10"
        assert environment["NCCL_IB_GID_INDEX"] == "3"
        assert not any(name.startswith("RAY_") for name in environment)
        host = rank.container.host
        assert (host["NetworkMode"], host["IpcMode"]) == ("host", "host")
        assert {"Name": "memlock", "Soft": -1, "Hard": -1} in host["Ulimits"]  # type: ignore[operator]
        assert host["Devices"][0]["PathOnHost"] == "/dev/infiniband"  # type: ignore[index]


@over("count, more", [(2, {}), (3, {}), (4, {"NCCL_ALGO": "Ring"})])
def test_a_ring_is_told_to_nccl(count: int, more: dict[str, str]) -> None:
    ring = {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_IB_MERGE_NICS": "0", **more}
    for is_ring in (False, True):
        nodes = [seat(index, is_ring=is_ring) for index in range(count)]
        made = render(resolve(order({"tensor_parallel": str(count)}, **{**TWO, "max_nodes": 8})), nodes)
        for rank in made.ranks:
            assert (ring.items() <= rank.container.environment.items()) == is_ring


def test_a_gid_that_is_not_known_on_both_is_left_to_nccl() -> None:
    for seats in ((seat(0), seat(1, gid_index=5)), (seat(0, gid_index=None), seat(1, gid_index=None))):
        made = render(resolve(order(**TWO)), seats)
        assert not any("NCCL_IB_GID_INDEX" in rank.container.environment for rank in made.ranks)


def test_a_recipes_own_names_of_interfaces_give_way_to_the_nodes_and_it_is_told() -> None:
    named = {"NCCL_IB_HCA": "mlx5_0", "NCCL_IB_GID_INDEX": "7", "NCCL_NET_PLUGIN": "x"}
    named["VLLM_HOST_IP"] = "192.168.100.10"
    seats = (seat(0, gid_index=None), seat(1, gid_index=None))
    made = render(resolve(order(**TWO, environment=named)), seats)
    environment = made.ranks[1].container.environment
    assert environment["NCCL_IB_HCA"] == "rocep1s0f1,roceP2p1s0f1"
    assert environment["VLLM_HOST_IP"] == "192.168.100.11"
    assert environment["NCCL_NET_PLUGIN"] == "x"
    assert "NCCL_IB_GID_INDEX" not in environment
    assert [note for note in made.notes if "NCCL_IB_HCA" in note and "mlx5_0" in note and "spark2" in note]
    assert [note for note in made.notes if "NCCL_IB_GID_INDEX=7" in note]
    assert not [note for note in made.notes if "VLLM_HOST_IP" in note and "spark1" in note]


def test_sglangs_ranks_have_its_own_words() -> None:
    made = render(resolve(order({"tp": "2"}, **SGLANG, max_nodes=2)), pair())
    tail = ("--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "192.168.100.10:29501")
    assert made.ranks[1].argv[-6:] == tail
    assert "--headless" not in made.ranks[1].argv


@over(
    "values_, seats, said",
    [
        ({"tensor_parallel": "1"}, pair(), "tensor_parallel=1 needs 1 GPU, but 2 nodes have 2"),
        ({"tensor_parallel": "2"}, (seat(),), "needs 2 GPUs, but one node has 1"),
        ({"tensor_parallel": "2", "pp": "2"}, pair(), "needs 4 GPUs"),
        ({}, (seat(0), seat(1, fabric_ip="")), "spark2 has no address in a network of all"),
        ({}, (*pair(), seat(2)), "is for 1 to 2 nodes, and 3 are named"),
        ({"dp": "2"}, pair(), "tensor_parallel=2, data_parallel=2 needs 4 GPUs, but 2 nodes have 2"),
    ],
)
def test_what_does_not_spread_over_the_nodes_is_refused(
    values_: dict[str, str], seats: tuple[NodeContext, ...], said: str
) -> None:
    with pytest.raises(CannotRender, match=said):
        render(resolve(order(values_, **TWO)), seats)


@over(
    "tensor, pipeline, data, count",
    [("4", "1", "1", 4), ("2", "2", "1", 4), ("2", "1", "2", 4), ("1", "3", "1", 3), ("2", "2", "2", 8)],
)
def test_ranks_of_three_nodes_and_more_are_numbered_and_meet_at_the_head(
    tensor: str, pipeline: str, data: str, count: int
) -> None:
    sizes = {"tensor_parallel": tensor, "pipeline_parallel": pipeline, "data_parallel": data}
    made = render(resolve(order(sizes, **{**TWO, "max_nodes": 8})), [seat(index) for index in range(count)])
    assert [flags.value_of(rank.argv, "node-rank") for rank in made.ranks] == [str(index) for index in range(count)]
    assert {flags.value_of(rank.argv, "nnodes") for rank in made.ranks} == {str(count)}
    assert {flags.value_of(rank.argv, "master-addr") for rank in made.ranks} == {"192.168.100.10"}
    assert ["--headless" in rank.argv for rank in made.ranks] == [False] + [True] * (count - 1)
    with pytest.raises(CannotRender, match=f"needs {count} GPUs, but 5 nodes have 5") as refused:
        render(resolve(order(sizes, **{**TWO, "max_nodes": 8})), [seat(index) for index in range(5)])
    assert f"name {count} nodes" in refused.value.remedies


def test_sglang_spreads_data_parallel_ranks_only_of_its_attention() -> None:
    sizes = {"tensor_parallel": "2", "data_parallel": "2"}
    plain = {**SGLANG, "command": f"{SGLANG['command']} --dp {{data_parallel}}", "max_nodes": 2}
    with pytest.raises(CannotRender, match="SGLang doesn't run data_parallel=2 over several nodes"):
        render(resolve(order(sizes, **plain)), pair())
    attention = {**plain, "command": f"{plain['command']} --enable-dp-attention"}
    assert len(render(resolve(order(sizes, **attention)), pair()).ranks) == 2


def test_a_recipe_for_one_node_or_two_takes_one_gpu_on_one() -> None:
    made = render(resolve(order(**TWO)), [seat()])
    assert flags.value_of(made.head.argv, "tensor-parallel-size") == "1"
    assert "one GPU" in made.notes[0]
    assert made.head.container.environment == {}
    assert "IpcMode" not in made.head.container.host


def test_ray_on_one_node_or_beside_native_ranks_is_left_out() -> None:
    command = "vllm serve {model} -tp {tensor_parallel} --distributed-executor-backend ray --max-model-len 4096"
    for seats in ([seat()], pair()):
        made = render(resolve(order(**{**TWO, "command": command})), seats)
        assert "ray" not in made.head.argv
        assert flags.value_of(made.head.argv, "max-model-len") == "4096"
        assert [note for note in made.notes if "distributed-executor-backend" in note]


@over(
    "options, said",
    [
        ({"auto_remove": True}, "auto_remove"),
        ({"shm_size": "lots"}, "shm_size"),
        ({"ulimit": ["memlock"]}, "ulimit"),
        ({"volumes": ["relative:/x"]}, None),
        ({"volumes": ["../x:/x"]}, "volumes"),
        ({"volumes": ["/a:/b:/c:ro"]}, "volumes"),
        ({"devices": ["/etc/passwd"]}, "devices"),
    ],
)
def test_an_option_that_can_not_be_honoured_is_refused_by_name(options: dict[str, object], said: str | None) -> None:
    if said is None:  # a volume of Docker's
        assert render(resolve(order(options=options)), [seat()]).head.container.mounts[-1].source == "relative"
        return
    with pytest.raises(CannotRender, match=said):
        render(resolve(order(options=options)), [seat()])


@over(
    "gpus, count, ids",
    [("all", -1, None), (1, -1, None), ("device=0", 0, ["0"]), ('"device=GPU-1a,0"', 0, ["GPU-1a", "0"])],
)
def test_a_number_of_gpus_is_how_many_and_no_name_of_one(gpus: object, count: int, ids: list[str] | None) -> None:
    (request,) = body(render(resolve(order(options={"gpus": gpus})), [seat()]).head.container)["HostConfig"][
        "DeviceRequests"
    ]
    assert (request["Count"], request.get("DeviceIDs")) == (count, ids)


def test_a_gpu_by_cdi_is_asked_for_by_cdi() -> None:
    text = "model: org/model\ncontainer: vllm-node\ncommand: vllm serve {model}\n"
    made = read(f"{text}executor_config: {{gpu_access_mode: cdi}}\n", "r.yaml").recipe
    assert made is not None
    (request,) = body(render(resolve(Order(recipe=made)), [seat()]).head.container)["HostConfig"]["DeviceRequests"]
    assert request == {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}


def test_options_become_dockers_own() -> None:
    options = {
        "network": "bridge", "ipc": "private", "shm_size": "8gb", "privileged": True, "user": "root",
        "security_opt": ["seccomp=unconfined"], "cap_add": ["sys_nice"], "ulimit": ["stack=1:2"],
        "devices": ["/dev/fuse"], "memory_limit": "64g", "labels": ["a=b"],
        "volumes": ["~/x:/x:ro", "/y"], "restart_policy": "unless-stopped", "entrypoint": "",
    }  # fmt: skip
    made = render(resolve(order(options=options)), [seat()])
    found = body(made.head.container)
    host = found["HostConfig"]
    assert found["Entrypoint"] == [""]
    assert found["ExposedPorts"] == {"8000/tcp": {}}
    assert found["Labels"]["a"] == "b"
    assert host["PortBindings"] == {"8000/tcp": [{"HostIp": "", "HostPort": "8000"}]}
    assert host["RestartPolicy"] == {"Name": "no"}
    assert host["Binds"] == [
        "/home/me/.cache/huggingface:/root/.cache/huggingface", "/home/me/x:/x:ro", "/y:/y"
    ]  # fmt: skip
    assert (host["ShmSize"], host["Memory"], host["Privileged"]) == (8 << 30, 64 << 30, True)
    assert host["CapAdd"] == ["SYS_NICE"]
    assert {"Name": "stack", "Soft": 1, "Hard": 2} in host["Ulimits"]
    assert "restart_policy unless-stopped" in made.notes[0]


@over(
    "image, entrypoint",
    [
        ("nvcr.io/nvidia/vllm:26.05.post1-py3", None),
        ("lmsysorg/sglang:v0.5.12", None),
        ("vllm/vllm-openai:v0.19.0", [""]),
        ("vllm-node:latest", [""]),
        ("localhost/mine", [""]),
    ],
)
def test_an_entrypoint_that_may_be_the_engine_itself_is_left_out(image: str, entrypoint: list[str] | None) -> None:
    assert body(render(resolve(order({"container": image})), [seat()]).head.container).get("Entrypoint") == entrypoint


@over("text", ["", "x", "--", "../a b", "ü/ö", "a" * 300, "-vllm", "$(reboot)"])
def test_a_containers_name_is_one_that_docker_takes(text: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", container_name(text))
