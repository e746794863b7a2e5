"""What is said of a tool that declares neither danger nor side effects (DEF-8), with the line to add."""

import logging

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.declaration import declaration

log = logging.getLogger("toolkeep.approval")


def danger_reason(tool: RegisteredTool) -> str:
    """Why a person is asked, where it is for its danger."""
    if not tool.is_undeclared:
        return f"its danger is {tool.danger.value}"
    line = declaration(tool.definition, tool.runner)
    return f"it declares no side effects, so its danger is {tool.danger.value}; its author adds {line}"


def warn_undeclared(tool: RegisteredTool) -> None:
    """Tell the host's own program, which runs the tool unasked; called in another way, a person is asked."""
    if not log.isEnabledFor(logging.WARNING):
        return
    message = (
        f"tool '{tool.name}' declares neither danger nor side effects, so a call by a model is asked about"
    )
    text = f"{message}; add {declaration(tool.definition, tool.runner)}"
    named = {"tool_name": tool.name}
    record = log.makeRecord(log.name, logging.WARNING, __file__, 0, text, (), None, extra=named)
    log.handle(record)
    if not _has_listener(log) and logging.lastResort is not None:
        logging.lastResort.handle(record)  # a first script sets up no logging, and must read this


def _has_listener(logger: logging.Logger | None) -> bool:
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
