"""A model's files and config, asked of the hub from this machine.

The token goes in a header to the hub alone, never to a host that it redirects to, and into no answer.
"""

from __future__ import annotations

import json
import os
import time

from sparktop.probe.runner.models import CONFIG_BYTES, CONFIG_NAMES, node_token
from sparktop.probe.runner.weights import shortened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Words = dict[str, Any]

HUB_BYTES = 4 << 20
HUB_FILES = 5000


def hub_model(words: Words) -> Words:
    """The answer to a `hub` question."""
    hub = HubAsker(str(words["hub"]), str(words.get("token") or ""), float(words.get("seconds") or 15.0))
    return hub.model(str(words["repo"]), str(words.get("revision") or "main"))


class HubAsker:
    """One hub, asked within one question's time."""

    def __init__(self, hub: str, token: str, seconds: float) -> None:
        # Imported only here, in a child: they take ten megabytes.
        import urllib.error
        import urllib.parse
        import urllib.request

        self.hub = hub.rstrip("/")
        self.token = token.strip() or node_token(os.environ)
        self.until = time.monotonic() + seconds
        self.quote = urllib.parse.quote
        self.http_error, self.url_error = urllib.error.HTTPError, urllib.error.URLError
        self.request = urllib.request.Request

        class Elsewhere(urllib.request.HTTPRedirectHandler):
            """Keeps the token from other hosts, which urllib would send it to."""

            def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
                new = super().redirect_request(req, fp, code, msg, headers, newurl)
                if new is not None and (new.type, new.host) != (req.type, req.host):
                    new.remove_header("Authorization")
                return new

        self.opener = urllib.request.build_opener(Elsewhere)

    def model(self, repo: str, revision: str) -> Words:
        """A model's files, parameters and configs at a revision."""
        answer: Words = {"status": 0, "problem": "", "gated": "", "revision": "", "files": [], "config": None}
        if not self.hub.startswith(("https://", "http://")):
            return {**answer, "problem": f"{self.hub[:200]} is not the address of a hub"}
        at = self.quote(repo, safe="/")
        commit = self.quote(revision, safe="")
        status, data, problem = self.get(f"{self.hub}/api/models/{at}/revision/{commit}?blobs=true", HUB_BYTES)
        answer["status"], answer["problem"] = status, problem
        if status != 200:
            return answer
        try:
            words = json.loads(data)
            siblings = [sibling for sibling in words.get("siblings") or () if isinstance(sibling, dict)]
        except (ValueError, RecursionError, AttributeError, TypeError):
            return {**answer, "status": 0, "problem": f"{self.hub} doesn't answer like a hub"}
        tensors = words.get("safetensors")
        answer["gated"] = words.get("gated") or ""
        answer["revision"] = str(words.get("sha") or "")[:64]
        answer["parameters"] = shortened(tensors.get("parameters")) if isinstance(tensors, dict) else None
        answer["files"] = [
            {"path": str(sibling.get("rfilename"))[:300], "size_bytes": size if isinstance(size, int) else None}
            for sibling in siblings[:HUB_FILES]
            for size in [sibling.get("size")]
        ]
        names = [file["path"] for file in answer["files"]]
        config_name = next((name for name in CONFIG_NAMES if name in names), CONFIG_NAMES[0])
        for name, key in ((config_name, "config"), ("hf_quant_config.json", "quant_config")):
            if key == "quant_config" and (name not in names or "quantization_config" in (answer["config"] or {})):
                continue
            # Of a gated model everybody may list the files, and not fetch them.
            status, data, problem = self.get(f"{self.hub}/{at}/resolve/{commit}/{name}", CONFIG_BYTES)
            if status == 200:
                try:
                    answer[key] = shortened(json.loads(data))
                except (ValueError, RecursionError):
                    answer["problem"] = f"{name} of {repo} is not JSON"
            elif status in (401, 403):
                answer["status"], answer["problem"] = status, problem
                break
            elif status != 404:
                answer["problem"] = problem
        return answer

    def get(self, url: str, limit: int) -> tuple[int, bytes, str]:
        """(HTTP status, body, problem); status 0: no answer."""
        left = self.until - time.monotonic()
        if left <= 0:
            return 0, b"", f"{self.hub} takes too long to answer"
        headers = {"User-Agent": "sparktop", "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        try:
            with self.opener.open(self.request(url, headers=headers), timeout=max(1.0, left)) as reply:
                data = b""
                while len(data) <= limit and (piece := reply.read(65536)):
                    data += piece
                    if time.monotonic() > self.until:
                        return 0, b"", f"{self.hub} takes too long to answer"
                if len(data) > limit:
                    return 0, b"", f"{self.hub} gave too long an answer"
                return int(reply.status), data, ""
        except self.http_error as error:
            code = error.headers.get("X-Error-Code") or ""
            said = error.headers.get("X-Error-Message") or error.reason or ""
            return int(error.code), b"", " ".join(f"{code} {said}".split())[:300]
        except TimeoutError:
            return 0, b"", f"{self.hub} didn't answer in time"
        except self.url_error as error:
            return 0, b"", f"{self.hub} can't be reached from here: {str(error.reason)[:200]}"
        except (OSError, ValueError, UnicodeError) as error:
            return 0, b"", f"the request to {self.hub} failed: {type(error).__name__}"
        except Exception as error:  # http.client's own errors aren't OSErrors
            return 0, b"", f"the request to {self.hub} failed: {type(error).__name__}"
