"""What a launch or relaunch was asked for comes back from the audit as it went, and no secret goes there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.table import over

from sparktop.errors import UsageError
from sparktop.model.change import Change
from sparktop.model.recipe import Order
from sparktop.model.request import Request
from sparktop.operate.audit.request_codec import encoded_request, whole_request
from sparktop.operate.secrets.masking import Masker
from sparktop.recipe.read.shelf import recipe

SECRET = "hunter2hunter2"
QWEN = "qwen3.6-35b-a3b-fp8"


def kept(request: Request, *secrets: str) -> Any:
    words = encoded_request(request, Masker(secrets))
    return None if words is None else json.loads(json.dumps(words))


def relaunch(**more: Any) -> Request:
    return Request(action="relaunch", nodes=("spark1",), target="vllm", change=Change(**more))


@over(
    "request_",
    [
        relaunch(),
        relaunch(flags={"--gpu-memory-utilization": "0.70", "--enforce-eager": "", "--swap-space": None}),
        relaunch(environment={"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": None}, image="img:2"),
        relaunch(options={"ShmSize": 17179869184, "IpcMode": "host", "Devices": [{"PathOnHost": "/dev/x"}]}),
        relaunch(by_engine={"vllm": Change(flags={"--a": "1"}), "sglang": Change(flags={"--b": ""})}),
        relaunch(by_node={"spark2": Change(environment={"A": "1", "HF_TOKEN": SECRET}, image="b")}),
        relaunch(environment={"HF_TOKEN": SECRET, "A": "1"}),
    ],
    ids=["empty", "flags", "variables", "options", "by-engine", "by-node", "secret"],
)
def test_a_change_comes_back_as_it_went(request_: Request) -> None:
    words = kept(request_, SECRET)
    assert SECRET not in json.dumps(words)
    plain = replace(request_, change=Change())
    assert whole_request(plain, words, {"HF_TOKEN": SECRET}) == request_


def test_a_line_that_can_t_be_read_is_named_the_first_of_several() -> None:
    words = kept(relaunch(flags={"--a": "1"}))
    (kind,) = words["change"]
    words["change"][kind] = [*words["change"][kind], "no change at all", "--b=1", "unset=a b"]
    with pytest.raises(UsageError) as caught:
        whole_request(relaunch(), words, {})
    assert caught.value.message.startswith("'no change at all': neither a flag nor NAME=value")


def test_a_variable_that_has_no_value_here_is_named() -> None:
    words = kept(relaunch(environment={"HF_TOKEN": SECRET}), SECRET)
    with pytest.raises(UsageError, match="HF_TOKEN is not set here"):
        whole_request(relaunch(), words, {})


@over(
    "request_",
    [
        relaunch(flags={"--api-key": SECRET}),
        relaunch(environment={"EXTRA": f"--api-key {SECRET}"}),
        relaunch(environment={"A": "two\nlines"}),
        relaunch(
            environment={"HF_TOKEN": "one-token-123"}, by_node={"spark2": Change(environment={"HF_TOKEN": "two-456"})}
        ),
    ],
    ids=["flag", "in-a-value", "no-line", "two-values"],
)
def test_what_holds_a_secret_or_is_no_line_is_not_kept(request_: Request) -> None:
    words = kept(request_, SECRET)
    if words is not None:  # a value that names a secret is kept as its variable
        assert SECRET not in json.dumps(words)
        assert whole_request(relaunch(), words, {"EXTRA": f"--api-key {SECRET}"}) == request_
    else:
        assert whole_request(relaunch(), {}, {}) is None


def test_an_order_comes_back_as_it_went(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", SECRET)
    order = Order(
        recipe=recipe(QWEN), values={"port": "8001"}, stops=(("spark1", "vllm-old"),), may_fetch=False,
        secrets={"HF_TOKEN": SECRET}, hub="https://hub.example",
    )  # fmt: skip
    request = Request(action="launch", nodes=("spark1", "spark2"), order=order, options={"grace_s": "7"})
    words = kept(request, SECRET)
    assert SECRET not in json.dumps(words)
    again = whole_request(replace(request, order=None), words, {"HF_ENDPOINT": "https://hub.example/"})
    assert again == request


def test_a_recipe_of_ones_own_is_kept_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text(Path(recipe(QWEN).path).read_text())
    monkeypatch.chdir(tmp_path)
    request = Request(action="launch", nodes=("spark1",), order=Order(recipe=recipe("./mine.yaml")))
    words = kept(request)
    assert words["order"]["recipe"] == str(own)
    own.unlink()
    with pytest.raises(UsageError):
        whole_request(request, words, {})


@over("words", [{}, {"order": None}, {"order": {"recipe": 3}}, {"change": [1]}, {"order": [1]}])
def test_nonsense_in_the_audit_is_no_request(words: Any) -> None:
    assert whole_request(relaunch(), words, {}) is None


def test_a_value_that_is_a_secret_keeps_the_order_out() -> None:
    order = Order(recipe=recipe(QWEN), values={"served_model_name": SECRET})
    assert kept(Request(action="launch", nodes=("spark1",), order=order), SECRET) is None


def test_other_requests_have_nothing_more() -> None:
    assert kept(Request(action="safe-restart", nodes=("spark1",))) == {}
