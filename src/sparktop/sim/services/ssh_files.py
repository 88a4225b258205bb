"""The login user's ~/.ssh on a simulated Spark, and the programs that read and write it."""

from __future__ import annotations

import base64
import hashlib
import re

from sparktop.sim.reaction import acts
from sparktop.sim.scenario.script import NodeScript
from sparktop.sim.services.answers import captured
from sparktop.sim.services.process import Call, Ran
from sparktop.sim.spark.storage import home

_LINE = re.compile(r"\\\|\^(.*)\$\|d")
_RANGE = re.compile(r"\\\|\^(.*)\$\|,\\\|\^(.*)\$\|d")


def text_of(script: NodeScript, path: str) -> str:
    """What was written to a file there; empty where there is none."""
    answer = captured(script, path)
    return answer.output if answer is not None and not answer.is_missing else ""


def accepts(script: NodeScript, public_key: str) -> bool:
    """Whether sshd there lets the holder of this key in, given as algorithm and base64."""
    lines = text_of(script, f"{home(script)}/.ssh/authorized_keys").splitlines()
    return not script.machine.needs_password or any(public_key in line for line in lines)


def logs_in(near: NodeScript, far: NodeScript, ip: str) -> str:
    """Why ssh from one to the other fails, in its own words; empty where it logs in."""
    if near.machine.has_mesh and far.machine.has_mesh:
        return ""
    known = text_of(near, f"{home(near)}/.ssh/known_hosts")
    if not any(line.split(" ")[0] == ip for line in known.splitlines()):
        return "Host key verification failed."
    own = " ".join(text_of(near, f"{home(near)}/.ssh/id_ed25519").split()[:2])
    if not own or own not in text_of(far, f"{home(far)}/.ssh/authorized_keys"):
        return f"{far.machine.user}@{ip}: Permission denied (publickey,password)."
    return ""


# Programs


def getent(call: Call) -> Ran:
    """`getent passwd USER`."""
    machine = call.spark.script.machine
    if call.argv[1:] != ("passwd", machine.user):
        return Ran(code=2)
    user, number = machine.user, machine.user_id
    return Ran(output=f"{user}:x:{number}:{number}::{home(call.spark.script)}:/bin/bash\n")


def find(call: Call) -> Ran:
    """`find HOME ... -printf "%y %m %U %P\\n"`: the home and what was written below its .ssh."""
    own, number = home(call.spark.script), call.spark.script.machine.user_id
    if "-printf" not in call.argv or call.argv[1] != own:
        return Ran()
    prefix = f"{own}/.ssh/"
    names = [one.name.removeprefix(prefix) for one in call.spark.script.answers if one.name.startswith(prefix)]
    rows = [f"d 750 {number} ", *([f"d 700 {number} .ssh"] if names else [])]
    rows += [f"f 600 {number} .ssh/{name}" for name in names]
    return Ran(output="".join(f"{row}\n" for row in rows))


def dd(call: Call) -> Ran:
    """`dd if=TEXT of=PATH oflag=append`: the steps of simulated Sparks have a file's text in place of its name."""
    words = dict(word.partition("=")[::2] for word in call.argv[1:])
    path = words.get("of", "")
    text = text_of(call.spark.script, path) + words.get("if", "").removeprefix("/")
    return Ran(act=acts.write_file(path=path, text=text))


def sed(call: Call) -> Ran:
    r"""`sed -i '\|^LINE$|d' PATH`, and the same for a block from one line to another."""
    path, expression = call.argv[-1], call.argv[-2]
    lines = text_of(call.spark.script, path).splitlines()
    if found := _RANGE.fullmatch(expression):
        first, last = (_plain(text) for text in found.groups())
        if first in lines and last in lines:
            del lines[lines.index(first) : lines.index(last) + 1]
    elif found := _LINE.fullmatch(expression):
        lines = [line for line in lines if line != _plain(found[1])]
    else:
        return Ran(code=1, errors=f"sed: unknown expression {expression}\n")
    return Ran(act=acts.write_file(path=path, text="".join(f"{line}\n" for line in lines)))


def _plain(pattern: str) -> str:
    return re.sub(r"\\(.)", r"\1", pattern)


def ssh_keygen(call: Call) -> Ran:
    """`ssh-keygen -y -f PATH` and `ssh-keygen -t ed25519 -f PATH`: the file holds the public half alone."""
    path, script = call.flag("-f") or "", call.spark.script
    text = text_of(script, path)
    if "-y" in call.argv:
        return Ran(output=text) if text else Ran(code=255, errors=f"{path}: No such file or directory\n")
    if text:
        return Ran(code=1, errors=f"{path} already exists.\n")
    digest = hashlib.sha256(f"{script.machine.hostname} {path}".encode()).digest()
    blob = b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20" + digest
    line = f"ssh-ed25519 {base64.b64encode(blob).decode()} {call.flag('-C') or ''}\n"
    return Ran(act=acts.write_file(path=path, text=line), seconds=0.2)


def first_words(call: Call) -> Ran | None:
    """`awk '{print $1, $2}' PATH.pub`; None for any other awk."""
    if "{print $1, $2}" not in call.argv:
        return None
    text = text_of(call.spark.script, call.argv[-1].removesuffix(".pub"))
    return Ran(output=" ".join(text.split()[:2]) + "\n")
