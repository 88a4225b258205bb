#!/usr/bin/python3
"""An inference server as far as an operator sees one: holds memory, logs like vLLM, serves figures and a completion.

Runs inside the tests' image as /usr/local/bin/vllm, standard library alone: `vllm serve MODEL --port 8000`; and as
/usr/local/bin/sglang, where it logs and counts as SGLang does: `sglang serve --model-path MODEL --port 30000`. What it
writes are the lines of the simulated Sparks' engines (`sim/spark/engine_lines.toml`, of vLLM 0.32.0 and SGLang 0.5.23,
beside it in the image). What it does beside that is set by its environment:

ENGINE_LOAD_S=1          seconds of loading; ENGINE_HOLD_MIB=48 is what it holds afterwards
ENGINE_SPIKE_MIB=0       taken at the first request, unless --enforce-eager (field report 001)
ENGINE_HELD_BY=          a file: it doesn't come up while that is there
ENGINE_FAILS=            "load": ends with an error while loading; "ready": just after it; both unless ENGINE_MENDED=1
                         or the flag of ENGINE_MENDED_BY stands in its arguments
ENGINE_TOKENS_S=50       how fast it answers
ENGINE_COMPLETION=       "hang", "error", "null" (all tokens went into reasoning), "empty" (tokens without text)
ENGINE_BUSY=0            requests of others that run all the time
ENGINE_DEAF=1            doesn't end by SIGTERM, as a hung one; its log has "deaf"
ENGINE_SAYS=             one more line of its log
VLLM_API_KEY=            wanted in the Authorization header
"""

import json
import os
import re
import signal
import socket
import sys
import threading
import time
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ARGUMENTS = sys.argv[1:]
ENVIRONMENT = os.environ
HELD = []
COUNTS = {"requests": 0, "prompt": 0, "generated": 0, "running": int(ENVIRONMENT.get("ENGINE_BUSY", "0"))}
MIB = 1024 * 1024


def flag(name, default=None):
    """The value of --name VALUE or --name=VALUE; True for a switch."""
    for at, word in enumerate(ARGUMENTS):
        if word == name:
            following = ARGUMENTS[at + 1] if at + 1 < len(ARGUMENTS) else "--"
            return True if following.startswith("--") else following
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return default


IS_SGLANG = os.path.basename(sys.argv[0]) == "sglang"
MODEL = flag("--model-path") or next((word for word in ARGUMENTS[1:] if not word.startswith("-")), "tiny")
NAME = flag("--served-model-name", MODEL)
PORT = int(flag("--port", "30000" if IS_SGLANG else "8000"))
IS_FURTHER_RANK = flag("--headless") is not None or (IS_SGLANG and flag("--node-rank", "0") != "0")


with open("/usr/local/share/engine_lines.toml", "rb") as lines:
    LINES = tomllib.load(lines)["sglang" if IS_SGLANG else "vllm"]
FILLED = {
    "version": "0.32.0", "model": MODEL, "context": flag("--max-model-len", "4096"), "context_text": "4,096",
    "port": PORT, "arguments": {"model_tag": MODEL, "port": PORT}, "worker": "(EngineCore pid=77)", "rank": 0,
    "ranks": 1, "tp": "", "shards": 8, "weights_s": "1.00", "load_s": "1.000000", "weights_gib": "0.05",
    "kv_gib": "0.05",
    "half_gib": "0.10", "tokens": 284160, "concurrency": "69.38", "joined_s": "0.07", "init_s": "1.00",
    "graphs_s": "1.00", "type": "LlamaForCausalLM", "graphs": flag("--enforce-eager") is None,
}  # fmt: skip


def say(text, **figures):
    """Lines of its log, with the figures that they leave open."""
    text = re.sub(r"<(\w+)>", lambda match: str(FILLED[match[1]]).replace("{", "{{").replace("}", "}}"), text)
    stamps = {"vllm_time": time.strftime("%m-%d %H:%M:%S"), "sglang_time": time.strftime("%Y-%m-%d %H:%M:%S")}
    sys.stderr.write(text.format(available_gib=100.0, **stamps, **figures) + "\n")
    sys.stderr.flush()


def hold(mib):
    """Take so much memory and touch every page of it."""
    block = bytearray(mib * MIB)
    for at in range(0, len(block), 4096):
        block[at] = 1
    HELD.append(block)


def is_mended():
    mended_by = ENVIRONMENT.get("ENGINE_MENDED_BY")
    return ENVIRONMENT.get("ENGINE_MENDED") == "1" or bool(mended_by and flag(mended_by) is not None)


def fail(text):
    """As vLLM says it of a core that fails to start."""
    core = "(EngineCore pid=77) ERROR {vllm_time} [core.py:1510] "
    say(f"{core}EngineCore failed to start.\n{core}Traceback (most recent call last):\n{core}RuntimeError: {text}")
    say("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}")
    sys.exit(1)


def load():
    """The phases of a start, in ENGINE_LOAD_S seconds."""
    began, seconds = time.monotonic(), float(ENVIRONMENT.get("ENGINE_LOAD_S", "1"))
    mib = int(ENVIRONMENT.get("ENGINE_HOLD_MIB", "48"))

    def come(share):
        time.sleep(max(0.0, began + share * seconds - time.monotonic()))

    for row in sorted(LINES["start"], key=lambda row: row["at"]):
        if "every" in row or (row["by"] == "endpoint" and IS_FURTHER_RANK):
            continue
        if row["by"] == "graphs" and (IS_FURTHER_RANK or not FILLED["graphs"]):
            continue
        while row["at"] and os.path.exists(ENVIRONMENT.get("ENGINE_HELD_BY", "")):
            time.sleep(0.05)
        if row["at"] == 1.0 and not IS_FURTHER_RANK:
            return row["text"]
        come(row["at"])
        if "until" not in row:
            say(row["text"])
            if "version" in row["text"]:
                ranks_by_ray()
                if ENVIRONMENT.get("ENGINE_SAYS"):
                    say(ENVIRONMENT["ENGINE_SAYS"].replace("{", "{{").replace("}", "}}"))
            continue
        total = 8 if "shards" in row["total"] else 4
        for done in range(1, total + 1):
            come(row["at"] + (row["until"] - row["at"]) * done / total)
            figures = {"percent": 100 * done / total, "bar": "####", "done": done, "total": total, "rate": "1.00it/s"}
            say(row["text"], elapsed=f"00:{done:02d}", left=f"00:{total - done:02d}", **figures)
            if total == 8:
                hold(max(1, mib // total))
                if done == 4 and ENVIRONMENT.get("ENGINE_FAILS") == "load" and not is_mended():
                    fail("CUDA error: out of memory")
    return ""


def stop(*_):
    """SIGTERM: it says so and ends with 0, as both engines do."""
    for row in LINES["stop"]:
        say(row["text"])
    os._exit(0)


def deaf(*_):
    os.write(2, b"deaf\n")


def ranks_by_ray():
    """Under Ray the ranks of the other nodes are put there now (`ray_program.py`)."""
    if flag("--distributed-executor-backend") != "ray":
        return
    with open("/tmp/ray_current_cluster") as current:
        host, _, port = current.read().rpartition(":")
    with socket.create_connection((host, int(port)), 5) as line:
        line.sendall(b'{"spawn": true}\n')
        line.makefile().readline()


def spike():
    """What the first request takes that nothing before it did."""
    mib = int(ENVIRONMENT.get("ENGINE_SPIKE_MIB", "0"))
    if mib and flag("--enforce-eager") is None:
        for _ in range(16):
            hold(max(1, mib // 16))
            time.sleep(0.05)


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, _format, *args):
        stamp = time.strftime("[%Y-%m-%d %H:%M:%S] ") if IS_SGLANG else ""
        sys.stderr.write(f'{stamp}INFO:     127.0.0.1:0 - "{self.requestline}" {args[1]} OK\n')
        sys.stderr.flush()

    def answer(self, body, status=200, kind="application/json"):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def is_let_in(self):
        key = ENVIRONMENT.get("VLLM_API_KEY")
        if key and self.path.startswith("/v1/") and self.headers.get("Authorization") != f"Bearer {key}":
            self.answer({"error": "Unauthorized"}, 401)
            return False
        return True

    def do_GET(self):
        if not self.is_let_in():
            return
        if self.path == "/metrics":
            self.answer(metrics(), kind="text/plain; version=0.0.4; charset=utf-8")
        elif self.path == "/version":
            self.answer({"version": FILLED["version"]})
        elif self.path == "/health":
            self.answer("")
        elif self.path.partition("?")[0] == "/v1/models":
            self.answer(
                {
                    "object": "list",
                    "data": [{"id": NAME, "object": "model", "max_model_len": int(flag("--max-model-len", "4096"))}],
                }
            )
        else:
            self.answer({"detail": "Not Found"}, 404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.is_let_in():
            return
        pools = flag("--runner") == "pooling"
        if self.path not in (("/v1/embeddings",) if pools else ("/v1/chat/completions", "/v1/completions")):
            self.answer({"detail": "Not Found"}, 404)
            return
        wanted = json.loads(body)
        if wanted.get("model") not in (NAME, MODEL):
            self.answer({"error": {"message": f"The model `{wanted.get('model')}` does not exist.", "code": 404}}, 404)
            return
        how = ENVIRONMENT.get("ENGINE_COMPLETION", "")
        COUNTS["running"] += 1
        try:
            if COUNTS["requests"] == 0:
                spike()
            COUNTS["requests"] += 1
            if how == "hang":
                time.sleep(3600)
            if how == "error":
                self.answer({"error": {"message": "EngineDeadError", "code": 500}}, 500)
                return
            if pools:
                COUNTS["prompt"] += 9
                self.answer({"object": "list", "model": NAME, "data": [{"index": 0, "embedding": [0.25] * 8}]})
                return
            tool = self.tool_of(wanted)
            if tool is None:
                return
            words = None if how == "null" else [] if how == "empty" else self.words_of(wanted)
            if wanted.get("ignore_eos"):  # a measurement: as many as are asked for
                words = ["one "] * int(wanted.get("max_tokens", 16))
            COUNTS["prompt"] += 9
            COUNTS["generated"] += len(words or "abc")
            self.complete(wanted, words, tool)
        finally:
            COUNTS["running"] -= 1

    def tool_of(self, wanted):
        """The tool that it calls, "" for none; None where it has refused, as vLLM does without a parser."""
        if not wanted.get("tools"):
            return ""
        if flag("--enable-auto-tool-choice") is None or flag("--tool-call-parser") is None:
            why = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            self.answer({"error": {"message": why, "type": "BadRequestError", "code": 400}}, 400)
            return None
        return wanted["tools"][0]["function"]["name"]

    def words_of(self, wanted):
        """What it says: a word that the prompt hides, else the same every time; reasoned about with a parser."""
        prompt = json.dumps(wanted.get("messages") or wanted.get("prompt") or "")
        hidden = re.search(r"code word is ([\w-]+)", prompt)
        count = len(prompt) // 4
        if count > int(flag("--max-model-len", "4096")):
            return ["too ", "long"]
        return [hidden[1][:3], hidden[1][3:], "."] if hidden else ["rea", "dy", "."]

    def complete(self, wanted, words, tool=""):
        finish = "tool_calls" if tool else "length" if words is None else "stop"
        head = {"id": "cmpl-1", "object": "chat.completion", "created": int(time.time()), "model": NAME}
        count = len(words) if words else 3
        usage = {"prompt_tokens": 9, "completion_tokens": count, "total_tokens": 9 + count}
        call = [{"index": 0, "id": "call-1", "function": {"name": tool, "arguments": '{"city": "Oslo"}'}}]
        thinks = [{"reasoning_content": "hm"}] if flag("--reasoning-parser") and words else []
        if not wanted.get("stream"):
            thought = "hm" if words is None or thinks else None
            text = None if words is None or tool else "".join(words)
            message = {"role": "assistant", "content": text, "reasoning_content": thought}
            message["tool_calls"] = call if tool else []
            choice = {"index": 0, "message": message, "text": "".join(words or []), "finish_reason": finish}
            self.answer({**head, "choices": [choice], "usage": usage})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        head["object"] = "chat.completion.chunk"
        deltas = [{"reasoning_content": "hm"}] * 3 if words is None else [{"content": word} for word in words]
        deltas = [*thinks, *([{"tool_calls": call}] if tool else deltas)]
        for delta in deltas:
            self.event({**head, "choices": [{"index": 0, "delta": delta, "text": delta.get("content", "")}]})
            time.sleep(1 / float(ENVIRONMENT.get("ENGINE_TOKENS_S", "50")))
        self.event({**head, "choices": [{"index": 0, "delta": {}, "text": "", "finish_reason": finish}]})
        self.event({**head, "choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def event(self, chunk):
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.flush()


def metrics():
    label = f'{{engine="0",model_name="{NAME}"}}'
    rows = (
        {
            "sglang:num_running_reqs gauge": COUNTS["running"],
            "sglang:num_queue_reqs gauge": 0,
            "sglang:token_usage gauge": 0.01,
            "sglang:prompt_tokens_total counter": COUNTS["prompt"],
            "sglang:generation_tokens_total counter": COUNTS["generated"],
        }
        if IS_SGLANG
        else {
            "vllm:num_requests_running gauge": COUNTS["running"],
            "vllm:num_requests_waiting gauge": 0,
            "vllm:kv_cache_usage_perc gauge": 0.01,
            "vllm:prompt_tokens_total counter": COUNTS["prompt"],
            "vllm:generation_tokens_total counter": COUNTS["generated"],
            "vllm:request_success_total counter": COUNTS["requests"],
        }
    )
    out = []
    for key, value in rows.items():
        name, kind = key.split()
        family = name.removesuffix("_total")
        out.append(f"# HELP {family} Of the tests' engine.\n# TYPE {family} {kind}\n{name}{label} {float(value)}\n")
    return "".join(out)


def main():
    signal.signal(signal.SIGTERM, deaf if ENVIRONMENT.get("ENGINE_DEAF") == "1" else stop)
    ready = load()
    if ENVIRONMENT.get("ENGINE_FAILS") == "ready" and not is_mended():
        fail("NCCL error: unhandled system error")
    if IS_FURTHER_RANK:
        threading.Event().wait()
    server = ThreadingHTTPServer((str(flag("--host", "127.0.0.1")), PORT), Endpoint)
    say(ready)
    server.serve_forever()


main()
