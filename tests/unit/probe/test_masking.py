"""Secrets leave a Spark in no argv: canaries in every place an engine's command line can hold one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop import masking
from sparktop.masking import MASK, is_secret_name, mask_argv, mask_text

CANARY = "c4n4ry-Value/with+odd.chars"
PLAIN_CANARY = "c4n4ryValue99"


@pytest.mark.parametrize(
    "argv",
    [
        ["vllm", "serve", "m", "--api-key", CANARY],
        ["vllm", "serve", "m", "--api-key", "first", CANARY],
        ["vllm", "serve", "m", f"--api-key={CANARY}"],
        ["python3", "-m", "sglang.launch_server", "--admin-api-key", CANARY, "--port", "30000"],
        ["python3", "serve.py", "--hf-token", CANARY],
        ["python3", "serve.py", "--hf_token", CANARY],
        ["python3", "serve.py", f"--auth-token={CANARY}"],
        ["python3", "serve.py", "--ssl-keyfile-password", CANARY],
        ["python3", "serve.py", "--client-secret", "-" + CANARY],
        ["env", f"HF_TOKEN={CANARY}", "vllm", "serve", "m"],
        ["env", f"VLLM_API_KEY={CANARY}", "vllm", "serve", "m"],
        ["env", f"AWS_SECRET_ACCESS_KEY={CANARY}", "x"],
        ["python3", "x.py", "--otel-headers", f"Authorization: Bearer {CANARY}"],
        ["python3", "x.py", "--extra", f'{{"api_key": "{CANARY}", "n": 1}}'],
        ["python3", "x.py", "--extra", f'{{"apiKey":"{CANARY}"}}'],
        ["python3", "-c", f"import os; os.environ['HF_TOKEN']='{PLAIN_CANARY}'; run()"],
        ["python3", "x.py", f'{{"api_keys": ["a", "{PLAIN_CANARY}"]}}'],
        ["python3", "x.py", f'{{\\"api_key\\": \\"{PLAIN_CANARY}\\"}}'],
        ["python3", "x.py", f"author: token={PLAIN_CANARY}"],
        ["curl", "-H", f"Authorization: Token {PLAIN_CANARY}"],
        ["sh", "-c", f"vllm serve m --hf-token '{PLAIN_CANARY}'"],
        [f"vllm serve m --api-key {PLAIN_CANARY} --port 8000"],  # a process title, or sh -c
        [f"vllm serve m --api-key={PLAIN_CANARY}"],
        [f"HF_TOKEN={PLAIN_CANARY} vllm serve m"],
        ["python3", "x.py", f"--db=postgres://user:{PLAIN_CANARY}@db:5432/x"],
        ["python3", "x.py", f"https://:{PLAIN_CANARY}@host/"],
        ["git", "clone", f"https://me:p@{PLAIN_CANARY}@host/x"],
        ["curl", "-u", f"me:{CANARY}", "http://x"],
        ["curl", "-u", f"me:a b {CANARY}", "http://x"],
        ["/usr/bin/curl", f"-ume:{CANARY}"],
        ["curl", "-sSu", f"me:{CANARY}"],
        ["curl", f"--user=me:{CANARY}"],
        ["curl", "--user", f"me:{CANARY}"],
        ["curl", "-U", f"me:{CANARY}"],
        ["curl", f"--proxy-user=me:{CANARY}"],
        ["env", "A=1", "curl", "-k", "-u", f":{CANARY}"],
        [f"curl -u me:{PLAIN_CANARY} http://x"],
        ["sh", "-c", f"true; curl -fsS --user 'me:two words {PLAIN_CANARY}' http://x"],
        ["sh", "-c", f'curl -u"me:{PLAIN_CANARY}" http://x'],
        ["curl", "-H", f"Authorization: Digest username=me, realm=x, response={PLAIN_CANARY}"],
        ["curl", f'-HAuthorization: Digest username="me", response="{PLAIN_CANARY}"'],
        ["curl", f"--header=Authorization: ApiKey {PLAIN_CANARY}"],
        [f'curl -H \'Authorization: Digest username="me", response="{PLAIN_CANARY}"\' http://x'],
        [f'curl --header "Proxy-Authorization: Negotiate {PLAIN_CANARY}" http://x'],
        ["curl", "-H", f"Cookie: a=b; session={PLAIN_CANARY}"],
        ["curl", "-H", f"X-Functions-Key: {PLAIN_CANARY}"],
        ["curl", "-H", f"PRIVATE-TOKEN: {PLAIN_CANARY}"],
        ["env", f"PGPASSWORD={CANARY}", "psql"],
        [f"PGPASSWORD={PLAIN_CANARY} psql -h db"],
        [f"PGPASSWORD='a {PLAIN_CANARY}' psql -h db"],
        ["curl", "-d", f'{{"user": "me", "password": "a \\" {PLAIN_CANARY}"}}'],
        ["curl", "-d", f'{{"token":"{PLAIN_CANARY}","api_key" : "{PLAIN_CANARY}"}}'],
        ["curl", "-d", f"user=me&password={PLAIN_CANARY}"],
        [f"{{'clientSecret': '{PLAIN_CANARY}'}}"],
    ],
    ids=lambda argv: " ".join(argv)[:60],
)
def test_a_secret_is_masked(argv: list[str]) -> None:
    masked = " ".join(mask_argv(argv))
    assert CANARY not in masked
    assert PLAIN_CANARY not in masked
    assert MASK in masked


@pytest.mark.parametrize(
    "secret",
    [
        "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"[:34],
        "nvapi-" + "x1-Y2_z3" * 6,
        "sk-proj-" + "0aB" * 12,
        "ghp_" + "a1B2" * 9,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-DEF_123",
        "AKIA" + "ABCDEFGH12345678",
    ],
)
def test_a_known_kind_of_token_is_masked_wherever_it_stands(secret: str) -> None:
    for argv in (
        [secret],
        ["--model", secret],
        [f"--x={secret}"],
        [f"url?a={secret}&b=1"],
        [f"say {secret} twice {secret}"],
    ):
        assert secret not in " ".join(mask_argv(argv))


HARMLESS = [
    "vllm serve nvidia/Qwen3.6-35B-A3B-NVFP4 --max-num-batched-tokens 8192 --tokenizer-mode auto --port 8000",
    "--gpu-memory-utilization 0.85 --kv-cache-dtype fp8 --num-speculative-tokens 3 --max-tokens 100",
    "python3 -m sglang.launch_server --model-path M --host 0.0.0.0 --trust-remote-code --tp 2 --skip-tokenizer-init",
    "--load-format hf_transfer --eos-token-id 2 --ssl-keyfile /etc/key.pem --enable-auto-tool-choice",
    "--served-model-name task-runner-of-the-long-name --token-file /run/secrets/x",
    "VLLM::Worker_TP0",
    "tokenizer=auto max_tokens=3 author=me passes=2",
    "docker run --user 1000:1000 -u app:app --gpus all image curl -u me http://localhost:8000/v1/models",
    "runuser -u nvidia -- python3 -u serve.py --hostname a:b",
]


@pytest.mark.parametrize("line", HARMLESS)
def test_what_is_no_secret_stays_readable(line: str) -> None:
    argv = line.split()
    assert mask_argv(argv) == argv
    assert mask_argv([line]) == [line]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('curl -H "Authorization: Bearer $VLLM_API_KEY" -d x', None),
        ("HF_TOKEN=${HF_TOKEN}", None),
        ("Authorization: Bearer $ecretvalue", f"Authorization: {MASK}"),
        ("password=$MY_PASSWORD-and-more", f"password={MASK}"),
    ],
)
def test_the_name_of_a_shell_variable_can_be_pasted(text: str, masked: str | None) -> None:
    assert mask_text(text) == (masked or text)


def test_json_and_what_follows_stay_readable() -> None:
    speculative = '{"method":"eagle3","num_speculative_tokens":3,"model":"a/b"}'
    argv = ["vllm", "serve", "m", "--api-key", "a", "b", "--speculative-config", speculative, "--port", "8000"]
    assert mask_argv(argv) == [*argv[:4], MASK, MASK, *argv[6:]]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("--api-key", True),
        ("OPENAI_API_KEY", True),
        ("apiKey", True),
        ("HF_TOKEN", True),
        ("hfToken", True),
        ("--password", True),
        ("--tokens", False),
        ("--tokenizer", False),
        ("--key", False),
        ("--token-id", False),
        ("--token-file", False),
        ("NOPASSWD", False),
        ("", False),
    ],
)
def test_names(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


FLAGS = st.sampled_from(["--api-key", "--hf-token", "--password", "--client-secret", "--auth_token"])


@given(before=st.lists(st.text(max_size=12), max_size=4), flag=FLAGS, joined=st.booleans())
def test_what_follows_a_secret_flag_never_survives(before: list[str], flag: str, joined: bool) -> None:
    argv = [*before, f"{flag}={CANARY}"] if joined else [*before, flag, CANARY]
    assert CANARY not in " ".join(mask_argv(argv))


@given(st.lists(st.text(max_size=60), max_size=6))
def test_any_argv_is_masked_without_failing_and_keeps_its_length(argv: list[str]) -> None:
    assert len(mask_argv(argv)) == len(argv)


@pytest.mark.parametrize(
    "line",
    [
        "Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 45, full token usage: 0.09,",
        "args: Namespace(hf_token=None, api_key=None, allow_credentials=False, port=8000)",
        "export HF_TOKEN=..., or HF_TOKEN=... in a file",
        "Avg prompt throughput: 13.1 tokens/s, Avg generation throughput: 29.4 tokens/s",
    ],
)
def test_what_an_engine_logs_of_tokens_stays_readable(line: str) -> None:
    assert mask_text(line) == line


def test_a_number_too_long_for_a_count_and_a_password_of_digits_are_masked() -> None:
    assert mask_text("token: 1234567890") == f"token: {MASK}"
    assert mask_text("password=123456") == f"password={MASK}"


WORDS = st.sampled_from(
    [
        "curl ",
        "-u ",
        "a:",
        "authorization",
        "PGPASSWORD",
        "hf_",
        "sk-",
        "eyJ",
        "://",
        "@",
        "Bearer ",
        "basic ",
        "token",
        "API",
        "api_key",
        "Key",
        "=",
        ": ",
        "--",
        '"',
        " ",
    ]
)


def masked_slowly(text: str) -> str:
    """The same rules with every pattern tried, and every word asked for what it names."""
    if "curl" in text.lower():
        at = text.lower().index("curl")
        text = text[:at] + masking._without_login(text[at:])
    for _, pattern, replacement in masking._PATTERNS:
        text = pattern.sub(replacement, text)
    masked, done, at = "", 0, 0
    while word := re.compile(r"[\w.-]+").search(text, at):
        at = word.end()
        name = word.group()[-100:]
        if not is_secret_name(name):
            continue
        value = masking._value_of(text, word.start(), at, name)
        if value:
            quote = value.group().lstrip("\\")[:1]
            masked += text[done : value.start()] + (quote if quote in "\"'[" else "") + MASK
            done = at = value.end()
    return masked + text[done:]


@given(st.lists(st.one_of(WORDS, st.text(max_size=6), st.just("a1B2c3D4e5F6g7H8")), max_size=12))
@settings(max_examples=500)
def test_nothing_is_passed_by_for_speed(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert mask_text(text) == masked_slowly(text)


def test_a_token_of_digits_in_a_json_body_is_masked_and_a_count_is_not() -> None:
    assert mask_text('{"token": 123456}') == f'{{"token": {MASK}}}'
    assert mask_text("{'new_token': 8192}") == "{'new_token': 8192}"


def test_what_stands_around_a_login_stays_readable() -> None:
    assert mask_argv(["curl", "-u", "me:pw", "-X", "GET", "u:v"]) == ["curl", "-u", f"me:{MASK}", "-X", "GET", "u:v"]
    assert mask_text('curl -u me:pw -H "Authorization: Digest a, b" -d x') == (
        f'curl -u me:{MASK} -H "Authorization: {MASK}" -d x'
    )
    assert mask_text("curl -u me:$PASSWORD x") == "curl -u me:$PASSWORD x"


@given(
    user=st.text("ab.", max_size=4), flag=st.sampled_from(["-u ", "-u", "--user ", "--user=", "-sU ", "--proxy-user="])
)
def test_no_login_of_curl_survives(user: str, flag: str) -> None:
    assert PLAIN_CANARY not in mask_text(f"sh -c 'curl {flag}{user}:{PLAIN_CANARY} http://x'")
    assert PLAIN_CANARY not in " ".join(mask_argv(["curl", *f"{flag}{user}:{PLAIN_CANARY}".split()]))
