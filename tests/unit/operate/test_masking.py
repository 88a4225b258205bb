"""What leaves a run has no secret in it, in no form."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import PurePosixPath
from urllib.parse import quote, quote_plus

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop.model.operation import Command, DockerCall, ImagePull, Transfer
from sparktop.operate.secrets.masking import Masker, forms, operation_entry, secret_words

ID = "ab" * 32
SECRET = "pä$s w'or\"d/+&=ü"


@over(
    "form",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(SECRET))[3:-3],
        shlex.quote(SECRET),
        repr(SECRET)[1:-1],
        base64.b64encode(SECRET.encode()).decode(),
        SECRET.encode().hex(),
    ],
)
def test_an_exact_value_is_masked_in_all_its_forms(form: str) -> None:
    masker = Masker((SECRET,))
    assert masker.text(f"it said {form}.") == "it said <masked>."
    assert SECRET not in repr(masker)


@given(st.text(min_size=6, max_size=40).filter(lambda text: len(text.strip()) >= 6), st.text(max_size=30))
def test_no_text_with_a_value_in_it_keeps_it(secret: str, around: str) -> None:
    masker = Masker((secret,))
    assert secret not in masker.exact(around + secret + around).replace("<masked>", "")


@given(st.binary(max_size=4), st.text(alphabet="abcdefgh0123456789", min_size=12, max_size=30), st.binary(max_size=4))
def test_base64_of_something_that_holds_it(before: bytes, secret: str, after: bytes) -> None:
    text = Masker((secret,)).exact(base64.b64encode(before + secret.encode() + after).decode())
    assert "<masked>" in text
    assert len(text.replace("<masked>", "")) <= 16


def test_a_short_value_is_masked_where_it_stands_alone() -> None:
    masker = Masker(("abc", ""))
    assert masker.text("abc is in abcdef, and in x=abc") == "<masked> is in abcdef, and in x=<masked>"


def test_what_a_limit_has_cut_short_is_masked_too() -> None:
    masker = Masker(("correct-horse-battery",))
    assert masker.text("horse-battery was wrong") == "<masked> was wrong"
    assert masker.text("it was correct-hor") == "it was <masked>"
    assert masker.text("it was correct") == "it was <masked>"
    assert masker.text("it was corr") == "it was corr"  # too little to tell


def test_names_and_patterns_need_no_plan() -> None:
    token = "hf_" + "a1B2" * 9
    masker = Masker()
    assert token not in masker.text(f"pulled with {token}")
    assert masker.argv(("serve", "--api-key", "x1", "x2", "--port", "1")) == [
        "serve",
        "--api-key",
        "<masked>",
        "<masked>",
        "--port",
        "1",
    ]
    data = masker.data(
        {"Env": ["A=1", "HF_TOKEN=2"], "password": "x", "Cmd": ["--api-key=y"], "n": 1, "deep": [{"auth": 3}]}
    )
    assert data == {
        "Env": ["A=<masked>", "HF_TOKEN=<masked>"],
        "password": "<masked>",
        "Cmd": ["--api-key=<masked>"],
        "n": 1,
        "deep": [{"auth": "<masked>"}],
    }


FETCH = Transfer(
    command=Command(argv=("hf", "download", "org/model"), environment={"HF_TOKEN": "hf_secret1"}, limit_s=60.0),
    grows="/home/x/.cache",
    key="model org/model for hf_secret1",
    total_bytes=34,
)


def test_what_is_fetched_stands_in_the_audit_without_its_secrets() -> None:
    told = operation_entry(FETCH, Masker(("hf_secret1",)))
    assert told == {
        "argv": ["hf", "download", "org/model"],
        "privilege": "user",
        "environment": ["HF_TOKEN"],
        "limit_s": 60.0,
        "transfer": "model org/model for <masked>",
        "grows": "/home/x/.cache",
        "total_bytes": 34,
    }
    assert operation_entry(ImagePull(image="x:1", limit_s=9.0), Masker()) == {"pull": "x:1", "limit_s": 9.0}


def test_hostile_arguments_stay_exact_in_the_audit() -> None:
    command = Command(argv=("docker", "start", "--", "a\nb\x1b]52;c;eA==\x07", "‮"))
    told = operation_entry(command, Masker())
    assert told["argv"][3] == "a\nb\x1b]52;c;eA==\x07"
    assert json.dumps(told).isascii()


def test_a_long_body_is_told_by_its_size() -> None:
    told = operation_entry(
        DockerCall(method="POST", path="/containers/create", body={"Labels": {"x": "y" * 20_000}}), Masker()
    )
    assert "characters" in told["body"]


def test_a_value_is_looked_for_as_a_shell_quotes_it_and_not_by_a_piece_of_it() -> None:
    assert "it'\"'\"'s secret" in forms("it's secret")
    assert all(len(form) >= len("plainvalue") or form not in "plainvalue" for form in forms("plainvalue"))


def test_only_what_is_masked_to_its_end_is_a_secret_word() -> None:
    argv = ["vllm", "--db=https://me:hunter2hunter2@host/x", "--api-key", "one-key", "--hf-token=two-token"]
    assert secret_words(argv) == ["one-key", "two-token"]
    assert secret_words(["redis-cli", "-a", "three-pass", "mysql", "-pfour-pass"]) == ["three-pass", "four-pass"]


def test_a_secret_that_lost_one_character_is_masked() -> None:
    secret = "c4n4ry-value-99"
    masker = Masker([secret])
    assert masker.exact(f"{secret[1:]} and more") == "<masked> and more"
    assert masker.exact(f"before {secret[:-1]}") == "before <masked>"


def test_data_keeps_its_types_and_what_has_none_of_json_s_is_text() -> None:
    data = {"none": None, "yes": True, "n": 3, "share": 0.5}
    assert Masker(["c4n4ry-value-99"]).data(data) == data
    assert Masker(["c4n4ry-value-99"]).data({"path": PurePosixPath("/x/c4n4ry-value-99")}) == {"path": "/x/<masked>"}
