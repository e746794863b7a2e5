"""Logs a bug of ours without the words of the exception, which may quote a secret (VAL-6)."""

import logging
import traceback

log = logging.getLogger("toolkeep.validation")


def log_mishap(what: str, error: Exception, *, tool: str = "") -> None:
    """What failed, the type of the error and where it came up; never its message."""
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames[-5:]))
    log.error(what, extra={"tool_name": tool, "error_type": type(error).__name__, "where": where})
