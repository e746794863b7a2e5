"""The child that ends a worker whose lease is over."""

import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.spec("SCL-4")

PROGRAM = """
import os, sys, time
from toolkeep.fleet_worker.lease_watchdog import LeaseWatchdog
from toolkeep.fleet_worker.server_session import now
with LeaseWatchdog() as watchdog:
    {lines}
print("lived")
"""


def outcome_of(lines: str) -> tuple[int, str]:
    """How a worker that does this ends."""
    program = PROGRAM.format(lines=lines.strip().replace("\n", "\n    "))
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    return ended.returncode, ended.stdout.strip() or ended.stderr.strip().splitlines()[-1]


def test_a_worker_is_ended_when_its_lease_is_over() -> None:
    started = time.monotonic()
    program = PROGRAM.format(lines="watchdog.set(now() + 0.7); time.sleep(20)")
    ended = subprocess.run([sys.executable, "-c", program], check=False, cwd=ROOT, timeout=30)
    assert ended.returncode == -signal.SIGKILL
    assert time.monotonic() - started >= 0.7


def test_a_lease_that_was_renewed_or_given_back_ends_nothing() -> None:
    renewed = "watchdog.set(now() + 0.3); watchdog.set(now() + 60); time.sleep(0.8)"
    assert outcome_of(renewed) == (0, "lived")
    given_back = "watchdog.set(now() + 0.3); watchdog.set(0.0); time.sleep(0.8)"
    assert outcome_of(given_back) == (0, "lived")


def test_a_worker_that_tells_nothing_more_is_watched_to_its_end_and_nothing_is_printed() -> None:
    closed = "os.dup2(os.open(os.devnull, os.O_WRONLY), watchdog._told)"
    program = PROGRAM.format(lines=f"watchdog.set(now() + 0.7); {closed}; time.sleep(20)")
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, cwd=ROOT, capture_output=True, timeout=30
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, b"")


def test_a_worker_hears_that_nobody_watches() -> None:
    lines = """
os.kill(watchdog._child.pid, 9)
watchdog._child.wait()
assert not watchdog.is_alive
watchdog.set(now() + 60)
"""
    status, last = outcome_of(lines)
    assert status == 1
    assert last.startswith("BrokenPipeError")
