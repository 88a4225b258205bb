"""Secrets out of an archive: by structure, by pattern, by value wherever else; and what stays readable."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.table import over

from sparktop.masking import mask_text
from sparktop.operate.secrets import redaction
from sparktop.operate.secrets.masking import forms
from sparktop.operate.secrets.redaction import BY_KEY_BLOCK, BY_NAME, BY_SERIAL, BY_VALUE, ON_THE_SPARK, Redactor

INSPECT = {
    "Config": {
        "Env": [
            "HF_TOKEN=canary-in-env-41x",
            "VLLM_API_KEY=two words and 7",
            "LANG=C.UTF-8",
            "DB=http://me:canary-pw-9@db/x",
        ],
        "Cmd": ["serve", "--api-key", "canary-argv-77", "--hf-token=canary-argv-78", "--port", "8000"],
        "Labels": {"com.example.password": "canary-label-5", "version": "1"},
        "Healthcheck": {"Test": ["CMD-SHELL", "curl -H 'Authorization: Bearer canary-health-63' localhost"]},
    },
    "HostConfig": {"LogConfig": {"Type": "splunk", "Config": {"splunk-token": "canary-splunk-1", "tag": "x"}}},
    "Args": ['{"api_key": "canary-json-8", "rank": 1}'],
    "State": {"Running": True, "Pid": 77},
}
CANARIES = [
    "canary-in-env-41x", "two words and 7", "canary-pw-9", "canary-argv-77", "canary-argv-78", "canary-label-5",
    "canary-health-63", "canary-splunk-1", "canary-json-8",
]  # fmt: skip


def test_an_inspect_gives_nothing_away_and_stays_readable() -> None:
    redactor = Redactor()
    learnt = redactor.learn_data("inspect", INSPECT)
    text = json.dumps(redactor.finish_data("inspect", learnt))
    for canary in CANARIES:
        assert canary not in text
    for kept in (
        "LANG=C.UTF-8",
        '"--port", "8000"',
        '"version": "1"',
        '"Pid": 77',
        '"Running": true',
        "HF_TOKEN=<masked>",
    ):
        assert kept in text
    assert redactor.counts["inspect", BY_NAME] >= 6


@over("lead", ["", "--url="])
def test_every_secret_of_one_argument_is_found_in_any_log(lead: str) -> None:
    redactor = Redactor()
    words = ["get", f"{lead}http://h/?token=canary-first-1&password=canary-second-2"]
    assert redactor.learn_data("argv", words)[1].startswith(f"{lead}http://h/?token=<masked>&")
    log = redactor.finish_text("log", "first canary-first-1, second canary-second-2")
    assert log == "first <masked>, second <masked>"


@over("canary", CANARIES)
def test_what_the_inspect_gives_away_is_found_in_any_log(canary: str) -> None:
    redactor = Redactor()
    redactor.learn_data("inspect", INSPECT)
    log = "\n".join(
        (
            f"started with {canary}",
            f"GET /v1?key={quote(canary, safe='')}&x=1",
            f"form {quote_plus(canary)}",
            f"x-key: {base64.b64encode(f'user:{canary}'.encode()).decode()}",
            json.dumps({"a": json.dumps({"b": canary})}),
        )
    )
    text = redactor.finish_text("log", redactor.learn_text("log", log))
    for form in forms(canary):
        assert len(form) < 6 or form not in text
    assert redactor.counts["log", BY_VALUE] >= 4
    assert not redactor.holds(text)


def test_a_log_gives_away_what_stands_in_another_log() -> None:
    redactor = Redactor()
    first = redactor.learn_text("a", "INFO loading with HF_TOKEN=abcdef0123456789 from hub")
    second = redactor.learn_text("b", "child says abcdef0123456789, and 'INFO' is a word")
    assert redactor.finish_text("a", first) == "INFO loading with HF_TOKEN=<masked> from hub"
    assert redactor.finish_text("b", second) == "child says <masked>, and 'INFO' is a word"


@over(
    "text",
    [
        "INFO 11-21 03:12:44 [loader.py:12] Loading weights took 41.20 seconds, 512 tokens per block",
        "tokenizer=Qwen/Qwen3.6 max_tokens=64 tokenizer_mode=auto",
        "NVRM: Xid (PCI:000f:01:00): 43, pid=77352, name=VLLM::EngineCor",
        "",
        "\n\n",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    redactor = Redactor(["canary-known"])
    assert redactor.finish_text("log", redactor.learn_text("log", text)) == text


def test_words_after_a_secrets_name_do_not_empty_the_logs() -> None:
    redactor = Redactor()
    learnt = redactor.learn_text("log", "auth: disabled\npassword: required\napi_key=EMPTY\ntoken: localhost")
    other = redactor.learn_text("other", "disabled required EMPTY localhost")
    assert redactor.finish_text("other", other) == "disabled required EMPTY localhost"
    assert "disabled" not in redactor.finish_text("log", learnt)


def test_key_blocks_and_serials() -> None:
    kind = "OPENSSH PRIVATE KEY-----"
    key = f"-----BEGIN {kind}\nb3BlbnNzaC1rZXktdjEAAAAA\nAAAAQnFzZGZxc2Rm\n-----END {kind}"
    redactor = Redactor()
    text = redactor.learn_text(
        "a", f"x\n{key}\ny\n    Serial Number                         : 1420925012345\nDGX_SERIAL_NUMBER=1983A42"
    )
    bare = redactor.finish_text("b", redactor.learn_text("b", "again AAAAQnFzZGZxc2Rm there"))
    assert "b3Blbn" not in text
    assert "1420925012345" not in text
    assert "1983A42" not in text
    assert "AAAAQnFz" not in bare, "a key is printed line by line, too"
    assert redactor.counts["a", BY_KEY_BLOCK] == 1
    assert redactor.counts["a", BY_SERIAL] == 2


def test_a_key_that_was_cut_short() -> None:
    redactor = Redactor()
    assert "b3Blbn" not in redactor.learn_text("a", "-----BEGIN PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\nAAAA")


def test_a_short_value_that_is_known_is_a_word() -> None:
    redactor = Redactor(["7z", "longer-canary"])
    assert redactor.finish_text("a", "7z 17z 7zz; 7z") == "<masked> 17z 7zz; <masked>"
    assert redactor.finish_data("a", {"7z": ["7z", 7, True, None, 1.5]}) == {
        "<masked>": ["<masked>", 7, True, None, 1.5]
    }


def test_a_number_that_is_a_secret() -> None:
    redactor = Redactor()
    assert redactor.finish_data("a", redactor.learn_data("a", {"pin_password": 12345678, "other": 12345678})) == {
        "pin_password": "<masked>",
        "other": "<masked>",
    }


def test_the_report_counts_and_never_tells() -> None:
    redactor = Redactor(["canary-known"])
    redactor.finish_text("log", redactor.learn_text("log", "HF_TOKEN=abcdef0123456789 canary-known <masked>"))
    report = "\n".join(redactor.report())
    assert "log: 1 × " in report
    assert "1 values had been masked on the Spark" in report
    assert "canary" not in report + repr(redactor)
    assert " 0 × " not in f" {report}", "what removed nothing is no line"
    assert redactor.counts["log", ON_THE_SPARK] == 1


def test_a_credential_that_the_flag_before_it_gives_away_is_learnt() -> None:
    redactor = Redactor()
    commands = [["redis-cli", "-a", "c4n4ry-one"], ["curl", "-u", "me:c4n4ry-two"], ["mysql", "-pc4n4ry-three", "db"]]
    for data in commands:
        assert "c4n4ry" not in str(redactor.finish_data("inspect", redactor.learn_data("inspect", data)))
    assert redactor.finish_text("log", "c4n4ry-one c4n4ry-two c4n4ry-three") == "<masked> <masked> <masked>"


def test_how_many_values_it_knows_is_all_that_it_shows() -> None:
    assert repr(Redactor(["abc", "a-longer-secret"])) == "Redactor(2 values)"


def test_json_in_a_text_is_redacted_in_place_however_short_the_secret() -> None:
    redactor = Redactor()
    data = {"Cmd": ['{"password": "abc", "n": 1}', '{"n":  1}']}
    assert redactor.finish_data("inspect", redactor.learn_data("inspect", data)) == {
        "Cmd": ['{"password": "<masked>", "n": 1}', '{"n":  1}']
    }
    assert redactor.learn_data("inspect", {"a": '{"password": "abc"}', "b": '{"n":  1}'}) == {
        "a": '{"password": "<masked>"}',
        "b": '{"n":  1}',
    }


def test_a_secret_of_backslashes_alone_is_masked() -> None:
    assert mask_text("password=\\") == "password=<masked>"


def test_a_line_says_nothing_of_the_next() -> None:
    """As this machine's own kernel command line ends, and journalctl's next line begins."""
    redactor = Redactor()
    text = "2026-11-21T06:59:27,049887 cmdline: --tcp-only --auth-required\n2026-11-21T06:59:27,060000 next\n"
    assert redactor.finish_text("log", redactor.learn_text("log", text)) == text


COMMON = redaction._COMMON.split()
"""Words that are no secret, whoever takes them for one."""
_SECRET = st.text(
    alphabet=st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\u2028\u2029"),
    min_size=8,
    max_size=40,
).filter(
    lambda text: (
        text.strip() == text and len(text.encode()) >= 8 and "masked" not in text.lower() and text.lower() not in COMMON
    )
)


@given(secret=_SECRET, around=st.text(max_size=20), shift=st.integers(0, 2))
def test_a_secret_of_an_inspect_is_nowhere(secret: str, around: str, shift: int) -> None:
    redactor = Redactor()
    data = redactor.learn_data("inspect", {"Env": [f"APP_PASSWORD={secret}"], "other": [around, {"n": secret}]})
    lines = (
        f"{around}{secret}{around}",
        quote(secret),
        quote_plus(secret),
        json.dumps(secret),
        base64.b64encode(b"u" * shift + secret.encode()).decode(),
        secret.encode().hex(),
    )
    log = redactor.learn_text("log", "\n".join(lines))
    text = redactor.finish_text("log", log) + json.dumps(redactor.finish_data("inspect", data), ensure_ascii=False)
    assert secret not in text
    assert quote(secret, safe="") not in text
    assert base64.b64encode(secret.encode()).decode().rstrip("=") not in text
    assert not redactor.holds(text)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
        max_leaves=12,
    )
)
def test_any_data_keeps_its_shape(data: object) -> None:
    redactor = Redactor()
    found = redactor.finish_data("x", redactor.learn_data("x", data))
    json.dumps(found)
    assert isinstance(found, dict) is isinstance(data, dict)
