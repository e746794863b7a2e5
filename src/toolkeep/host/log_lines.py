"""Log records for people: errors reach stderr where the host set up no logging, and a record may carry text.

Trusts nothing in the text: it is indented, so that no line of it looks like a record of its own.
"""

import logging
import textwrap
from collections.abc import Mapping


def has_listener(logger: logging.Logger | None) -> bool:
    """Whether the host set up a handler that would get the records of a logger."""
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


class ErrorsOnStderr(logging.NullHandler):
    """Prints errors as Python does for loggers without a handler; silent once the host sets up logging."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Print a record of an error."""
        if record.levelno < logging.ERROR or logging.lastResort is None:
            return False
        if has_listener(logging.getLogger(record.name)):
            return False
        return bool(logging.lastResort.handle(record))


def log_error_with_text(log: logging.Logger, message: str, text: str, fields: Mapping[str, object]) -> None:
    """Log an error with text where others show a traceback; only `fields` are structured."""
    if not log.isEnabledFor(logging.ERROR):
        return
    record = log.makeRecord(log.name, logging.ERROR, __file__, 0, message, (), None, extra=dict(fields))
    record.exc_text = textwrap.indent(text, "    ")
    log.handle(record)
