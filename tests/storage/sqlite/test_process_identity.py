"""Processes that hold something: known to run, known to be gone, or not to be seen."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from toolkeep.storage.sqlite.process_identity import is_alive, is_gone, this_process


def test_this_process_is_alive() -> None:
    assert (is_alive(this_process()), is_gone(this_process())) == (True, False)


def test_a_process_that_ended_is_gone_also_before_anybody_waited_for_it() -> None:
    child = subprocess.Popen(["sleep", "60"])
    name = this_process().replace(str(os.getpid()), str(child.pid), 1)
    started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    name = f"{child.pid}-{started}-{name.rpartition('-')[2]}"
    assert (is_alive(name), is_gone(name)) == (True, False)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert (is_alive(name), is_gone(name)) == (False, True)
    child.wait()
    assert (is_alive(name), is_gone(name)) == (False, True)


def test_another_process_of_the_same_number_is_not_the_one() -> None:
    pid, started, namespace = this_process().split("-")
    other = f"{pid}-{int(started) + 1}-{namespace}"
    assert (is_alive(other), is_gone(other)) == (False, True)


def test_of_a_process_in_another_namespace_nothing_is_known() -> None:
    pid, started, namespace = this_process().split("-")
    elsewhere = f"{pid}-{int(started) + 1}-{int(namespace) + 1}"
    assert (is_alive(elsewhere), is_gone(elsewhere)) == (False, False)


def test_where_nothing_can_be_opened_nobody_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    pid, started, namespace = this_process().split("-")
    monkeypatch.setattr(Path, "read_bytes", fail)
    assert not is_gone(f"{pid}-{int(started) + 1}-{namespace}")


@pytest.mark.parametrize("name", ["", "x-y", "1", "-1-1", "1--1"])
def test_what_names_no_process_is_not_alive(name: str) -> None:
    assert not is_alive(name)
