"""The service that `sparktop watch --install` writes, run by a real systemd for a user."""

from __future__ import annotations

import pytest
from tests.real.machine import Machine
from tests.support import poll

from sparktop.headless.watch import install

pytestmark = [pytest.mark.real, pytest.mark.slow]
CONTROL = ("env", "XDG_RUNTIME_DIR=/run/user/0", "systemctl", "--user")


def test_systemd_keeps_the_watcher_running_for_its_user(spark: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    made = install.service(["/usr/bin/python3", "-c", "import time; time.sleep(100000)"], "linux")
    spark.run("loginctl", "enable-linger", "root")
    folder = "/root/.config/systemd/user"
    spark.run("sh", "-c", f"mkdir -p {folder} && cat > {folder}/{install.NAME}.service", said=made.text)
    poll(lambda: spark.run("sh", "-c", "systemctl is-active user@0 || true").strip() == "active", what="a user manager")
    for command in made.start:
        spark.run(*CONTROL, *command[2:])
    spark.run(*CONTROL, "is-active", install.NAME)
    first = spark.run(*CONTROL, "show", "--value", "--property=MainPID", install.NAME).strip()
    spark.run("kill", "-9", first)
    again = (*CONTROL, "show", "--value", "--property=NRestarts", install.NAME)
    poll(lambda: int(spark.run(*again)) >= 1, what="started again after kill -9")
    spark.run(*CONTROL, *made.stop[0][2:])
    assert spark.run("sh", "-c", f"{' '.join(CONTROL)} is-active {install.NAME} || true").strip() == "inactive"
