"""Progress of long work: one line on a terminal, which goes away; nothing elsewhere."""

import io
import threading
from typing import Any

import pytest

from toolkeep.cli import progress as module
from toolkeep.cli.progress import progress

pytestmark = pytest.mark.spec("CLI-1")


class Screen(io.StringIO):
    """A terminal that says when something was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.is_written.set()
        return super().write(text)


def test_long_work_is_shown_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    screen: Any = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.01)
    with progress("Verifying the log"):
        assert screen.is_written.wait(30)
    shown = screen.getvalue()
    assert "| Verifying the log… 0 s" in shown
    assert shown.endswith("\r\x1b[K")


def test_short_work_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    screen: Any = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    with progress("Verifying the log"):
        pass
    assert screen.getvalue() == ""


def test_nothing_is_shown_where_nobody_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.0)
    with progress("Verifying the log"):
        pass
    assert capsys.readouterr().err == ""
    assert [one.name for one in threading.enumerate() if "_show" in one.name] == []
