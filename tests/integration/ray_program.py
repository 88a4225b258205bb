#!/usr/bin/python3
"""Ray as far as a launch sees it: a head that listens, nodes that join, and ranks that an engine has put on them.

Runs inside the tests' image as /usr/local/bin/ray, standard library alone. A rank is a process titled as Ray titles
it, which holds what ENGINE_HOLD_MIB says. As with the real one, a node that has lost its head ends after a while
(RAY_ALONE_S, 1 s here).

    ray start --head --node-ip-address=A --port=P      returns when it listens
    ray start --address=A:P --block                    joins, and stays
    ray status --address=A:P                           a row a node, the head's own too
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

ARGUMENTS = sys.argv[1:]
CURRENT = "/tmp/ray_current_cluster"
MIB = 1024 * 1024
TITLE = "ray::RayWorkerWrapper.execute_method"


def flag(name, default=""):
    return next((word.partition("=")[2] for word in ARGUMENTS if word.startswith(name + "=")), default)


def said(line, answer):
    line.sendall(json.dumps(answer).encode() + b"\n")


def connected(address):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 5)


class Head:
    """Who has joined, and the ranks that were put there."""

    def __init__(self):
        self.nodes = []

    def serve(self, listener):
        while True:
            line, _ = listener.accept()
            threading.Thread(target=self.answer, args=(line,), daemon=True).start()

    def answer(self, line):
        asked = json.loads(line.makefile().readline() or "{}")
        if "join" in asked:
            self.nodes.append(line)
            return
        if "spawn" in asked:
            for node in self.nodes:
                said(node, {"spawn": True})
        said(line, {"nodes": 1 + len(self.nodes)})
        line.close()


def head():
    os.makedirs("/tmp", exist_ok=True)
    listener = socket.create_server((flag("--node-ip-address"), int(flag("--port", "6379"))))
    if os.fork():
        with open(CURRENT, "w") as where:
            where.write(f"{flag('--node-ip-address')}:{flag('--port', '6379')}")
        print("Ray runtime started.")
        return
    os.setsid()
    Head().serve(listener)


def joined():
    line = connected(flag("--address"))
    said(line, {"join": flag("--node-ip-address")})
    line.settimeout(None)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
    print("Ray runtime started.", flush=True)
    ranks = []

    def watch():
        while all(rank.poll() is None for rank in ranks):
            time.sleep(0.05)
        print("A worker died or was killed while executing a task by an unexpected system error.", flush=True)

    for row in line.makefile():
        if json.loads(row).get("spawn"):
            environment = {**os.environ, "PYTHONHOME": "/usr"}  # by its title it would not find its library
            argv = [TITLE, __file__, "rank"]
            ranks.append(subprocess.Popen(argv, executable=os.path.realpath(sys.executable), env=environment))
            threading.Thread(target=watch, daemon=True).start()
    for rank in ranks:
        rank.kill()
        rank.wait()
    time.sleep(float(os.environ.get("RAY_ALONE_S", "1")))
    print("Some Ray subprocesses exited unexpectedly:\n  raylet [exit code=1]", flush=True)
    sys.exit(1)


def rank():
    held = bytearray(int(os.environ.get("ENGINE_HOLD_MIB", "16")) * MIB)
    for at in range(0, len(held), 4096):
        held[at] = 1
    while True:
        time.sleep(60)


def status():
    line = connected(flag("--address"))
    said(line, {"status": True})
    count = json.loads(line.makefile().readline())["nodes"]
    print("======== Autoscaler status ========\nNode status\n-----\nActive:")
    for number in range(count):
        print(f" 1 node_{number:08x}")
    print("Pending:\n (no pending nodes)")


def main():
    if ARGUMENTS[:1] == ["rank"]:
        rank()
    elif ARGUMENTS[:1] == ["status"]:
        status()
    elif "--head" in ARGUMENTS:
        head()
    else:
        joined()


main()
