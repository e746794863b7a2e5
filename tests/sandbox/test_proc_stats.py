"""What the kernel counts of a process, read from outside it."""

import os
import signal
import subprocess
import sys

import pytest

from toolkeep.sandbox.proc_stats import process_use

TAKES = """
import time
memory = bytearray(40 << 20)
for place in range(0, len(memory), 4096):
    memory[place] = 1
del memory
while time.process_time() < 0.05:
    pass
print("done", flush=True)
input()
"""


@pytest.mark.spec("EXE-2")
def test_a_process_is_measured_until_it_is_reaped() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TAKES], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        pidfd = os.pidfd_open(process.pid)
        process.stdout.readline()
        alive = process_use(pidfd)
        assert alive is not None
        assert alive.cpu_ms >= 50
        assert alive.peak_bytes is not None
        assert alive.peak_bytes >= 40 << 20
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
        ended = process_use(pidfd)
        assert ended is not None
        assert ended.cpu_ms >= alive.cpu_ms
        assert not ended.peak_bytes
    assert process_use(pidfd) is None
    os.close(pidfd)
