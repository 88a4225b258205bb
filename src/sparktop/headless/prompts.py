"""Questions on a plain terminal, or a refusal with directions where there is none."""

from __future__ import annotations

import asyncio
import sys

from sparktop.headless.ask import answered, answered_unseen
from sparktop.transport.base import HostKeyQuestion, SecretQuestion


class TerminalPrompter:
    """Asks on standard error and reads the terminal; nothing of it reaches standard output, which is data."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def host_key(self, question: HostKeyQuestion) -> bool:
        """True when the operator typed yes; without a terminal False, with directions."""
        if not sys.stdin.isatty():
            _say(
                f"{question.host}: unknown host key {question.algorithm} {question.fingerprint}\n"
                f"  there is no terminal to ask on: connect once with `ssh {question.host}` and compare it"
            )
            return False
        lines = [f"{question.host} is not in {question.known_hosts_path}.", f"  {question.algorithm} key fingerprint"]
        lines.append(f"  {question.fingerprint}")
        if question.same_key_hosts:
            lines.append(f"  the same key as {', '.join(question.same_key_hosts)}: two units, or one?")
        async with self._one_at_a_time:
            answer = await answered("\n".join(lines) + "\nTrust it and write it down? (yes/no) ")
        return answer.lower() == "yes"

    async def secret(self, question: SecretQuestion) -> str | None:
        """What was typed, unseen unless the server asks for an echo; None without a terminal."""
        if not sys.stdin.isatty():
            _say(
                f"{question.host} wants: {question.prompt}\n  there is no terminal to ask on: load a key into ssh-agent"
            )
            return None
        text = f"{question.host}: {question.prompt} "
        async with self._one_at_a_time:
            return await (answered(text) if question.echo else answered_unseen(text))

    async def sudo(self, node: str, wrong_count: int) -> str | None:
        """The password for sudo on a node, as `operate.line.AskSecret` asks for it; None without a terminal."""
        if not sys.stdin.isatty():
            _say(
                f"{node}: sudo wants your password, and there is no terminal to ask on\n"
                "  run it at a terminal, or let sudo do without one there: the plan shows the line for it"
            )
            return None
        wrong = f" (wrong {wrong_count} times so far)" if wrong_count else ""
        async with self._one_at_a_time:
            return await answered_unseen(f"{node}: sudo wants your password{wrong}: ")


def _say(text: str) -> None:
    print(text, file=sys.stderr)
