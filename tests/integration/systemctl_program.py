"""A systemctl without systemd: it reads unit files and runs what they say, as far as a unit of sparktop's goes.

Started in a Spark's namespace in place of /usr/bin/systemctl; a real one needs to be the first process of a machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from sparktop.cmdline import systemd

UNITS = Path("/etc/systemd/system")
WANTS = UNITS / "multi-user.target.wants"


def settings(unit: str) -> list[tuple[str, str]]:
    text = (UNITS / unit).read_text()
    return [(one.name.text, one.value.text) for one in systemd.settings(text)]


def words(value: str) -> list[str]:
    _, command = systemd.prefix(value)
    return [systemd.shown(word) for word in systemd.split(command)]


def environment(unit: str) -> dict[str, str]:
    paths = [value for name, value in settings(unit) if name == "EnvironmentFile"]
    rows = (row.partition("=") for path in paths for row in Path(path).read_text().splitlines())
    return {name: re.sub(r'\\(["\\`$])', r"\1", value[1:-1]) for name, _, value in rows}


def start(unit: str) -> int:
    variables = os.environ | environment(unit)
    for name, value in settings(unit):
        if name == "ExecStartPre":
            done = subprocess.run(words(value), env=variables, check=False, capture_output=True)
            if done.returncode and not value.startswith("-"):
                return 1
    (command,) = [value for name, value in settings(unit) if name == "ExecStart"]
    subprocess.Popen(
        words(command), env=variables, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return 0


def stop(unit: str) -> int:
    (command,) = [value for name, value in settings(unit) if name == "ExecStop"]
    subprocess.run(words(command), check=False, capture_output=True)
    return 0


def show(names: list[str]) -> None:
    found = [name for name in names if (UNITS / name).exists()]
    blocks = []
    for name in found:
        (command,) = [value for key, value in settings(name) if key == "ExecStart"]
        path, *_ = words(command)
        line = f"{{ path={path} ; argv[]={' '.join(words(command))} ; ignore_errors=no ; start_time=[n/a] }}"
        blocks.append(f"Id={name}\nActiveState=active\nSubState=running\nResult=success\nExecStart={line}\n")
    print("\n".join(blocks))


def main() -> int:
    options = [word for word in sys.argv[1:] if word.startswith("-") and word != "--"]
    verb, *names = [word for word in sys.argv[1:] if not word.startswith("-")]
    if "--user" in options:
        return 1
    if verb == "show":
        show([name for name in names if name.endswith(".service")])
    elif verb in ("start", "stop"):
        return start(names[0]) if verb == "start" else stop(names[0])
    elif verb == "enable":
        WANTS.mkdir(parents=True, exist_ok=True)
        (WANTS / names[0]).symlink_to(UNITS / names[0])
    elif verb == "disable":
        (WANTS / names[0]).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
