"""What a relaunch changes, in words and lines."""

from __future__ import annotations

from sparktop.operate.container.remote_file import RemoteFile


def test_files_that_changed_everywhere_are_compared_line_by_line() -> None:
    before = "\n".join(f"      - NCCL_IB_HCA_{number}=rocep1s0f0" for number in range(2000))
    after = before.replace("=rocep1s0f0", "=rocep1s0f1")
    differences = list(RemoteFile(path="compose.yaml", before=before, after=after).differences())
    assert len(differences) == 4000
    assert [line.after for line in differences if line.before is None] == after.splitlines()


def test_a_file_s_text_is_in_no_traceback() -> None:
    file = RemoteFile(path="/etc/x", before="the canary before", after="the canary after")
    assert "canary" not in repr((file, file.check(), file.write(), file.restore()))
