"""A finding is confirmed where nothing can change what it says; else it is suspected, with what would settle it."""

from __future__ import annotations

from tests.lint_support import lines, linted, only
from tests.table import over

from sparktop.model.finding import Confidence

HIGH, ABSENT, METRICS = "gpu-memory-utilization-high", "gpu-memory-utilization-absent", "sglang-metrics-off"
IMAGE = "vllm/vllm-openai"
SERVE = "vllm serve /m --gpu-memory-utilization"


@over(
    "rule, text, settles",
    [
        (HIGH, f"{SERVE} 0.95", ""),
        (HIGH, f"U=0.95\n{SERVE} $U", ""),
        (HIGH, f"U=0.95\nif true; then echo; fi\n{SERVE} $U", ""),
        (HIGH, f"if test -f x; then\n  U=0.95\n  {SERVE} $U\nfi", ""),
        (HIGH, f"cd /opt && export A=1 && {SERVE} 0.95", ""),
        (HIGH, f'serve() {{\n  {SERVE} 0.95\n}}\nserve "$@"', ""),
        (HIGH, f"for M in a b; do {SERVE} 0.95; done", ""),
        (HIGH, f"source venv/bin/activate\nU=0.95\n{SERVE} $U", ""),
        (HIGH, f'U="${{U:-0.95}}"\n{SERVE} $U', "whether U is set"),
        (HIGH, f"{SERVE} ${{1:-0.95}}", "whether $1 is set"),
        (HIGH, f"if test $A; then\n  U=0.7\nelse\n  U=0.95\nfi\n{SERVE} $U", "the branch in line 3"),
        (HIGH, f"U=0.7\ntest $A = big && U=0.95\n{SERVE} $U", "the branch in line 2"),
        (HIGH, f"case $A in\n  a) U=0.95 ;;\nesac\n{SERVE} $U", "the branch in line"),
        (HIGH, f"U=0.95\n. ./common.sh\n{SERVE} $U", "`./common.sh` sets"),
        (HIGH, f'U=0.95\neval "$SETTINGS"\n{SERVE} $U', "`$SETTINGS` sets"),
        (HIGH, "services:\n  v:\n    build: .\n    command: m --gpu-memory-utilization 0.95\n", "Dockerfile"),
        (HIGH, "services:\n  v:\n    image: x/vllm\n    command: --model m --gpu-memory-utilization 0.95\n", ""),
        (
            HIGH,
            "services:\n  v:\n    image: x/vllm\n    command: --model m --gpu-memory-utilization ${U:-0.95}\n",
            "whether U is set",
        ),
        (ABSENT, "vllm serve /m", ""),
        (ABSENT, 'A=()\nvllm serve /m "${A[@]}"', ""),
        (ABSENT, 'A=()\n. "$1"\nvllm serve /m "${A[@]}"', "`${A[@]}` adds"),
        (ABSENT, 'A="${A:-}"\nvllm serve /m $A', "`${A:-}` adds"),
        (ABSENT, 'vllm serve /m "$@"', "`$@` adds"),
        ("flag-unknown-to-version", f"docker run {IMAGE}:v0.33.0 /m --not-there", ""),
        ("flag-unknown-to-version", f'I="${{I:-{IMAGE}:v0.33.0}}"\ndocker run "$I" /m --not-there', "whether I is set"),
        (METRICS, "sglang serve --model-path m --config /etc/s.yaml", "`--config /etc/s.yaml` adds"),
    ],
)  # fmt: skip
def test_certainty_is_earned(rule: str, text: str, settles: str) -> None:
    (finding,) = (finding for finding in linted(text) if finding.rule == f"config.{rule}")
    assert finding.confidence is (Confidence.SUSPECTED if settles else Confidence.CONFIRMED)
    assert settles in finding.settles


def test_a_config_file_may_set_the_host() -> None:
    text = "docker run --gpus all -p 10.0.0.1:30000:30000 lmsysorg/sglang:v0.5.23 sglang serve --model-path m"
    assert "config.loopback-in-container" in {finding.rule for finding in linted(text)}
    assert "config.loopback-in-container" not in {finding.rule for finding in linted(f"{text} --config /s.yaml")}


def test_a_cut_command_is_read_as_it_is_meant() -> None:
    text = "docker run --gpus all \\\n  --ipc host  # shared \\\n  vllm/vllm-openai:v0.33.0 /models/x --port 9\n"
    spec = only(text)
    assert spec.value("port") == "9"
    assert [spec.line_of(cut) for cut in spec.cuts] == [2]
    (finding,) = (finding for finding in linted(text) if finding.rule == "config.comment-cuts-command")
    assert lines(finding) == ["-   --ipc host  # shared \\", "+   --ipc host  \\"]


def test_two_engines_with_one_problem_are_one_finding() -> None:
    findings = [finding for finding in linted("vllm serve /a\nvllm serve /b\n") if finding.rule == f"config.{ABSENT}"]
    assert [[line.line for line in finding.evidence] for finding in findings] == [[1, 2]]


def test_a_wrapper_named_as_a_launcher_is_no_launcher_in_a_container() -> None:
    text = "services:\n  v:\n    image: x/vllm\n    command: /launch-cluster.sh vllm serve /m --port 9\n"
    assert only(text).value("port") == "9"


def test_the_container_is_shown_where_it_starts_and_not_its_program() -> None:
    spec = only('DOCKER="sudo docker"\n\n$DOCKER run --gpus all vllm/vllm-openai:v0.33.0 /models/x\n')
    assert spec.line_of(None) == 3


def test_a_variable_is_added_to_the_command_and_not_to_what_stands_above_it() -> None:
    text = f'E="-e VLLM_CACHE_ROOT=/c"\ndocker run --gpus all $E \\\n  -p 8000:8000 \\\n  {IMAGE}:v0.33.0 /m\n'
    (finding,) = (finding for finding in linted(text) if finding.rule == "config.api-without-key")
    assert lines(finding) == ["+   -e VLLM_API_KEY=${VLLM_API_KEY} \\"]


def test_what_docker_takes_is_not_put_into_the_images_variable() -> None:
    text = f'IMG=${{IMG:-{IMAGE}:v0.33.0}}\ndocker run -p 80:80 $IMG /m --api-key "${{K:-sk-canary012345}}" --port 80\n'
    found = {finding.rule: lines(finding) for finding in linted(text)}
    assert not [line for said in found.values() for line in said if line.startswith("+ IMG=")]
    said = found["config.secret-in-argv"]
    assert said[1:] == ["+ docker run -p 80:80 $IMG /m --port 80", "+ -e VLLM_API_KEY=${VLLM_API_KEY}"]
