"""The bench's lab: what it has started ends with it."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.table import over

RUN = """
from tests.bench.lab import end_by_signals
import signal, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
end_by_signals()
try:
    print("started", flush=True)
    time.sleep(60)
finally:
    print("ended", flush=True)
"""


@over("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_was_started(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "started\n"
        run.send_signal(number)
        assert run.communicate(timeout=30)[0] == "ended\n"
    assert run.returncode == 128 + number
