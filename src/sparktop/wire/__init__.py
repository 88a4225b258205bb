"""The probe's protocol, version 1: one JSON object a line, each way; this is its one description.

From the Spark (`kind` says which; numbers are integers or floats, times are CLOCK_BOOTTIME seconds of the node):

    hello      protocol, pid, digest (crc32 of the packed source, hex), facts {...}
    sample     seq, boot, wall, interval, meminfo {MemTotal: kB ...}, psi {memory|io|cpu: [some10, some60, full10,
               full60]}, vmstat {pswpin, pswpout, pgmajfault, allocstall, oom_kill}, cpu [busy, total] jiffies,
               load [1m, 5m, 15m], cost [cpu seconds of probe and children so far, resident kB], skipped
    gpu        boot, gpus [{name, uuid, driver, util, mem_util, power_mw, sm_mhz, sm_max_mhz, temp_c, pstate,
               throttle (mask), mem_total, mem_used (bytes),
               procs [[pid, name, bytes|null, "C"|"G"]], gaps {field: reason}}]
    processes  boot, total, zombies, rows [{pid, ppid, comm, state, rss, shm, swap (bytes), uid, start (boot seconds),
               cgroup, wchan, argv [...]}]
    network    boot, interfaces [{name, up, mtu, speed (Mb/s), addresses [IPv4/prefix]}], rdma [{device, port,
               interface, state, rate (Gb/s), rx, tx (bytes since boot), gids [[index, IPv4] of RoCE v2]}]
    desktop    boot, compositor, pid, uid, state, wchan, answers (true, false, or null and a reason), silent and blocked
               (boot seconds since when), reason, greeter; without a compositor boot and reason alone
    facts      as in hello: hostname, boot_id, machine_digest, kernel, arch, os, dgx, product, driver, cpus, python,
               user, uid, disks [[mount, total, free]], gaps {field: reason}; and beyond hello's: installed (the NVIDIA
               module on disk), next_kernel, next_driver, lingers, removes_ipc, graphical,
               units [[name, active, sub, result, restarts, restart, delay s, main pid, exit status]]
    collector  name (nvml, processes, kernel), state (ok, missing, denied, stuck, failed, paused), detail, since
    kernel     source (journal, sudo journal, sudo dmesg, kmsg), dropped,
               lines [[boot|null, wall|null, priority|null, text]]
    previous   boot_id (without hyphens; "": none), reason (why it has no lines), kernel [as kernel's lines], system
               [[wall, sender, text]]: the end of the previous boot's journal; pstore [[path, modified (wall)]],
               dump [as kernel's lines]
    guard      phase (armed, fired, failed, disarmed), id (64 hex digits), name, floor (bytes), within (s|null),
               stay (s), since (wall), available (bytes at firing|null), answered (s|null: how long Docker took),
               until (wall|null: of one that stayed after its console), detail
    bye        reason

To the Spark: {"ack": seq} for each line received that has a seq (also proof of life), {"beat": 1} every 3 s,
{"interval": seconds}, {"bye": 1}, {"previous": 1} (asks for that message, once a boot), {"guard": {id, name, floor
(bytes), within (s|null), stay (s), token, again}} arms the guard, or disarms it where id is empty; the same token again
is only answered, and `again` says that it was armed before, so that it is however low memory is by now. Every line from
the Spark that counts against the window carries `seq`.
Before its first line the probe prints `SPARKTOP <nonce>` so that a login banner can't be mistaken for it.

Unknown kinds and fields are ignored, so old recordings stay readable; anything else that isn't a message is Garbled.
"""

from __future__ import annotations

PROTOCOL = 1
MAX_LINE_BYTES = 256 * 1024
LEASE_S = 30.0
"""The probe leaves when nothing came from the operator for so long: a dropped network closes nothing."""
HEARTBEAT_S = 3.0
