"""Projects and homes with configuration files, and the word of a person who accepts them."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolkeep.config.settings import DEFAULT_SETTINGS, ConfigFile, Settings
from toolkeep.keep.open import open_state, read_configuration

NOBODY = 65534
DECIDED = (
    "tier", "allows_definitions", "limits", "include_actual_values", "validation_failure_level", "providers",
    "disabled", "permissions", "agents", "policies", "examples", "policies_held_back", "is_paranoid",
    "approval_wait_s", "database", "event_webhook", "upstreams", "fleet", "worker",
)  # fmt: skip


def configure(folder: Path, text: str | bytes, *, name: str = ".agent/config.yml") -> Path:
    """Write the configuration of a folder, and return where it is."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def configure_home(text: str | bytes, *, name: str = ".agent/config.yml") -> Path:
    """Write the user's own configuration."""
    return configure(Path.home(), text, name=name)


def settings_of(project: Path) -> Settings:
    """What is in force in a project."""
    return read_configuration(project, open_state(project))


def changes(settings: Settings) -> dict[str, Any]:
    """What the settings decide otherwise than a keep without configuration does."""
    decided = {name: getattr(settings, name) for name in DECIDED}
    return {name: value for name, value in decided.items() if value != getattr(DEFAULT_SETTINGS, name)}


def project_file(project: Path) -> ConfigFile:
    """The project's own file, as it was read."""
    (file,) = (file for file in settings_of(project).files if file.is_project)
    return file


def accept(project: Path) -> None:
    """A person accepts the project's file as it is now."""
    state, file = open_state(project), project_file(project)
    assert state is not None
    state.accept(file.path, file.seal, file.content)


def tool_text(*lines: str, name: str = "greet", version: str = "1.0.0", key: str = "tools/custom") -> str:
    """A file with one custom tool: three lines of keys, then `lines`. The first of these is line 6."""
    section, inside = key.split("/")
    head = [
        f"{section}:",
        f"  {inside}:",
        f"    - name: {name}",
        "      description: Greets a person by name.",
    ]
    return "\n".join([*head, f"      version: {version}", *(f"      {line}" for line in lines), ""])


@contextlib.contextmanager
def never_waits() -> Iterator[None]:
    """Fail, instead of hanging, where something waits for another process."""

    def fail(*_: object) -> None:
        pytest.fail("it waits for somebody to write")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(3)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def without_root() -> Iterator[None]:
    """Root reads everything, so be nobody for a while where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
