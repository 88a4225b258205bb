"""Secrets leave a Spark in no argv: canaries in every place an engine's command line can hold one."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st
from tests.table import over

from sparktop import masking
from sparktop.masking import MASK, is_secret, is_secret_name, mask_argv, mask_text

CANARY = "c4n4ry-Value/with+odd.chars"
PLAIN_CANARY = "c4n4ryValue99"
LONG_CANARY = PLAIN_CANARY * 4  # as long as the keys of ngrok and wandb, which tell them from words


@over(
    "argv",
    [
        ["vllm", "serve", "m", "--api-key", CANARY],
        ["vllm", "serve", "m", "--api-k", "first", CANARY],  # argparse takes what names only one
        ["vllm", "serve", "m", f"--hf-tok={CANARY}"],
        [f"vllm serve m --api_ke {CANARY} --ssl-keyfile-pass={CANARY}"],
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
        ["aws_secret_access_key=" + PLAIN_CANARY],
        ["hf", "auth", "login", "--token", PLAIN_CANARY],
        [f"hf auth login --token {PLAIN_CANARY}"],
        ["psql", f"postgresql://me:{PLAIN_CANARY}@db/x"],
        ["psql", f"host=db password={PLAIN_CANARY} user=me"],
        [f"wget --user=me --http-password {PLAIN_CANARY} http://x"],
        ["mysql", f"--password={PLAIN_CANARY}"],
        ["tailscale", "up", "--authkey", PLAIN_CANARY],
        ["skopeo", "copy", "--src-creds", f"me:{PLAIN_CANARY}", "a", "b"],
        ["keytool", "-storepass", PLAIN_CANARY],
        [f"keytool -storepass {PLAIN_CANARY} -list"],
        ["sh", "-c", f"echo {PLAIN_CANARY} | docker login -u me --password-stdin nvcr.io"],
        ["sh", "-c", f"echo -n '{PLAIN_CANARY}'|sudo -kS apt-get update"],
        [f'printf "me:{PLAIN_CANARY}" | chpasswd'],
    ],
    ids=lambda argv: " ".join(argv)[:60],
)
def test_a_secret_is_masked(argv: list[str]) -> None:
    masked = " ".join(mask_argv(argv))
    assert CANARY not in masked
    assert PLAIN_CANARY not in masked
    assert MASK in masked


BY_FLAG = [
    ("sshpass", "-p", "{} ssh -p 22 me@spark1"),
    ("sshpass", "-p{}", "ssh me@spark1"),
    ("redis-cli", "-h", "db -p 6379 -a {} ping"),
    ("mysql", "-uroot", "-p{} db"),
    ("/usr/bin/mysqldump", "-u", "root -p{} db"),
    ("docker", "run", "mariadb:11 mariadb -h db -p{} -P 3306"),
    ("docker", "login", "-u $oauthtoken -p {} nvcr.io"),
    ("docker", "--config", "/x login -p{} nvcr.io"),
    ("podman", "login", "nvcr.io -p {}"),
    ("helm", "registry", "login -u me -p {} nvcr.io"),
    ("mongosh", "-u", "root -p {} --port 27017"),
    ("ldapsearch", "-xw", "{} -D cn=me"),
    ("ipmitool", "-U", "me -P {} chassis status"),
    ("ssh-keygen", "-P", "{} -f key"),
    ("ssh-keygen", "-qN", "{} -f key"),
    ("zip", "-rP", "{} a.zip a"),
    ("7z", "x", "-p{} a.7z"),
    ("snmpwalk", "-v3", "-A {} host"),
    ("openssl", "enc", "-aes-256-cbc -k {}"),
    ("nmcli", "dev", "wifi connect net password {}"),
    ("ngrok", "config", "add-authtoken {}"),
    ("wandb", "login", "{}"),
    ("curl", "-sSu", "me:{} http://x"),
    ("curl", "--user=me:{}", "http://x"),
    ("http", "-a", "me:{} http://x"),
    ("smbclient", "-U", "me%{} //x/y"),
    ("lftp", "-u", "me,{} ftp://x"),
]
"""A program, and arguments of its with a credential at {}."""


@over("words", BY_FLAG, ids=" ".join)
def test_a_flag_that_only_its_program_makes_secret_is_masked(words: tuple[str, str, str]) -> None:
    argv = " ".join(words).replace("{}", LONG_CANARY).split()
    shapes = (
        mask_argv(argv),
        [mask_text(" ".join(argv))],
        [mask_text(f'sh -c "true; {" ".join(argv)}"')],
        [mask_text(" ".join(argv).replace(LONG_CANARY, f"'{LONG_CANARY} and more'"))],
        [mask_text(" ".join(argv).replace(LONG_CANARY, f'"{LONG_CANARY} and more"'))],
        [mask_text(f"Cmd: {argv}")],
        [mask_text(json.dumps({"cmd": argv, "n": 1}))],
        [mask_text(json.dumps(argv, separators=(",", ":")))],
    )
    for masked in shapes:
        text = " ".join(masked)
        assert PLAIN_CANARY not in text
        assert "and more" not in text
        assert MASK in text
    others = [word for word in argv if PLAIN_CANARY not in word]
    assert [word for word in mask_argv(argv) if MASK not in word] == others
    assert mask_text(" ".join(argv)) == " ".join(mask_argv(argv))


@over(
    "secret",
    [
        "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"[:34],
        "nvapi-" + "x1-Y2_z3" * 6,
        "sk-proj-" + "0aB" * 12,
        "ghp_" + "a1B2" * 9,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-DEF_123",
        "AKIA" + "ABCDEFGH12345678",
        "glpat-" + "aB3-xY9_" * 3,
        "tskey-auth-" + "kAbC12CNTRL-" * 2,
        "dckr_pat_" + "aB3-xY9_" * 3,
        "npm_" + "aB3xY9" * 6,
        "gsk_" + "aB3xY9" * 8,
        "hvs." + "CAESI-aB3_" * 3,
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
    "tokenizer=auto max_tokens=3 author=me passes=2 --set need.kv_bytes_per_token=98304",
    "docker run -v $PWD:/work -v $PWD/models:/models -e HF_TOKEN=${HF_TOKEN:-} image",
    "docker run --user 1000:1000 -u app:app --gpus all image curl -u me http://localhost:8000/v1/models",
    "runuser -u nvidia -- python3 -u serve.py --hostname a:b",
    "docker run -d -p 8000:8000 -u app --name vllm nvcr.io/nvidia/vllm:25.10 vllm serve m -tp 2",
    "docker login nvcr.io && docker compose -p spark up -d && docker run -p 8000:8000 image",
    "mysql -u root -p db -P 3306 -h x",
    "ssh -p 22 -o BatchMode=yes me@spark1 mkdir -p /x/y",
    "sshpass -e ssh -p 2222 me@spark1",
    "redis-cli -h db -p 6379 ping",
    "redis-server --port 6379 -a",
    "sqlcmd -S x -E; ps -p 12; nc -p 80 x; sudo -p PROMPT ls -a",
    "wandb login failed: run wandb login again",
    "nmcli connection show net",
    "curl -u me http://x -p -a -P z",
    "unzip -p a.zip",
    "zip -r a.zip a",
    "openssl req -x509 -key k.pem -keyout k.pem",
    "http GET x --form -a me",
    "echo done | tee /tmp/x | grep -a x",
    "sparktop act relaunch spark1 --unset-flag=--api-key --env VLLM_API_KEY; vllm serve m --api-ke --port 8000",
]


@over("line", HARMLESS)
def test_what_is_no_secret_stays_readable(line: str) -> None:
    argv = line.split()
    assert mask_argv(argv) == argv
    assert mask_argv([line]) == [line]


@over(
    "text, masked",
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


@over(
    "name, secret",
    [
        ("--api-key", True), ("OPENAI_API_KEY", True), ("apiKey", True), ("HF_TOKEN", True), ("hfToken", True),
        ("--password", True), ("--tokens", False), ("--tokenizer", False), ("--key", False), ("--token-id", False),
        ("--token-file", False), ("NOPASSWD", False), ("X_API_KEY_PROD", True), ("PRIVATE_KEY_PATH", False),
        ("x-functions-key", True), ("", False),
    ],
)  # fmt: skip
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


@over(
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


@over(
    "name, value, secret",
    [
        ("HF_TOKEN", "x", True), ("NGC_CLI_KEY", "x", True), ("SSH_KEYS", "x", True), ("HF_TOKEN", "", False),
        ("NGC_CLI_KEY", "", False), ("PORT", "8000", False), ("EXTRA", "--api-key hunter2", True),
    ],
)  # fmt: skip
def test_a_variable_is_a_secret_by_its_name_or_its_value(name: str, value: str, secret: bool) -> None:
    assert is_secret(name, value) is secret


def test_a_number_too_long_for_a_count_and_a_password_of_digits_are_masked() -> None:
    assert mask_text("token: 1234567890") == f"token: {MASK}"
    assert mask_text("password=123456") == f"password={MASK}"


WORDS = st.sampled_from(
    [
        "curl ", "/mysql ", "docker ", "login ", "nmcli ", "password ", "-u ", "-p", "'", ",", "echo ", "|",
        "--password-stdin", "a:", "authorization", "PGPASSWORD", "hf_", "sk-", "eyJ", "://", "@", "Bearer ", "basic ",
        "token", "API", "api_key", "Key", "=", ": ", "--", '"', " ",
    ]
)  # fmt: skip


def masked_slowly(text: str) -> str:
    """The same rules with every pattern tried, and every word asked for what it names."""
    text = masking._without_credential_flags(text)
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
def test_nothing_is_passed_by_for_speed(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert mask_text(text) == masked_slowly(text)


def test_a_token_of_digits_in_a_json_body_is_masked_and_a_count_is_not() -> None:
    assert mask_text('{"token": 123456}') == f'{{"token": {MASK}}}'
    assert mask_text("{'new_token': 8192}") == "{'new_token': 8192}"


def test_one_argument_is_hidden_behind_a_flag_that_takes_one() -> None:
    assert mask_argv(["x", "--password", "a", "b", "-c"]) == ["x", "--password", MASK, "b", "-c"]


def test_what_stands_around_a_login_stays_readable() -> None:
    assert mask_argv(["curl", "-u", "me:pw", "-X", "GET", "u:v"]) == ["curl", "-u", f"me:{MASK}", "-X", "GET", "u:v"]
    assert mask_text('curl -u me:pw -H "Authorization: Digest a, b" -d x') == (
        f'curl -u me:{MASK} -H "Authorization: {MASK}" -d x'
    )
    assert mask_text("curl -u me:$PASSWORD x") == "curl -u me:$PASSWORD x"
    assert mask_text("cookie=abc path=/x") == f"cookie={MASK} path=/x"
    assert mask_text('Authorization: "abc def" -d x') == f'Authorization: "{MASK}" -d x'
    assert mask_text(r"sh -c \"redis-cli -a \"x y\" ping\"") == rf"sh -c \"redis-cli -a \"{MASK}\" ping\""
    assert mask_text(f"mysql -p db; redis-cli -a {CANARY} ping") == f"mysql -p db; redis-cli -a {MASK} ping"


@given(
    user=st.text("ab.", max_size=4), flag=st.sampled_from(["-u ", "-u", "--user ", "--user=", "-sU ", "--proxy-user="])
)
def test_no_login_of_curl_survives(user: str, flag: str) -> None:
    assert PLAIN_CANARY not in mask_text(f"sh -c 'curl {flag}{user}:{PLAIN_CANARY} http://x'")
    assert PLAIN_CANARY not in " ".join(mask_argv(["curl", *f"{flag}{user}:{PLAIN_CANARY}".split()]))


@over("shown", ["$DB_PASSWORD", "${DB_PASSWORD}", "..."])
def test_what_is_to_be_typed_stays_readable(shown: str) -> None:
    text = f'mysql -p"{shown}" db; redis-cli -a {shown} ping; docker login -p {shown} nvcr.io'
    assert mask_text(text) == text
    assert mask_text('echo "$TOKEN" | docker login --password-stdin') == 'echo "$TOKEN" | docker login --password-stdin'
    assert mask_text(f"docker login -p {shown}x") == f"docker login -p {MASK}"
