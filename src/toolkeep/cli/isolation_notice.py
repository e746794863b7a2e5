"""One line at the start of a command: what isolation this machine lacks, and the narrowest cure."""

import contextlib
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from toolkeep.calls import RegisteredTool, ToolResult
from toolkeep.cli.options import say, warn

if TYPE_CHECKING:
    from toolkeep.keep.keep import Keep

_COMMAND: Final = "toolkeep doctor --profile apparmor"


def missing_isolation() -> str:
    """Why tools cannot be confined here and how to change that, in one line; empty if they can."""
    from toolkeep.cli.served_page import program_name
    from toolkeep.sandbox.isolation_levels import Isolation
    from toolkeep.sandbox.kernel_probe import glance

    cure = glance().cure(Isolation.STRICT)
    if cure is None:
        return ""
    remedy = cure.remedy.replace(_COMMAND, _COMMAND.replace("toolkeep", program_name(), 1))
    return f"tools cannot be confined here, so their calls are refused: {cure.cause}. Cure: {remedy}"


def warn_if_unconfined() -> bool:
    """Say on stderr what is missing; whether something is."""
    if said := missing_isolation():
        warn(said)
    return bool(said)


def warn_if_ran_unconfined(result: ToolResult) -> None:
    """Say on stderr that a call ran unconfined."""
    if "unconfined" in result.enforced:
        warn("it ran unconfined: this machine cannot confine it, and the configuration names it")


def say_unconfined(keep: "Keep", tools: Iterable[RegisteredTool]) -> None:
    """Say which of these tools the configuration lets run unconfined."""
    if names := sorted(tool.name for tool in tools if keep.may_run_unconfined(tool)):
        say(f"Unconfined where this machine cannot confine them, by configuration: {', '.join(names)}")


def warn_soon() -> None:
    """The same from a thread: a client waits for this process to answer."""
    threading.Thread(target=_warn_quietly, name="isolation-notice", daemon=True).start()


def _warn_quietly() -> None:
    with contextlib.suppress(Exception):  # the process is ending, and nobody reads a notice any more
        warn_if_unconfined()
