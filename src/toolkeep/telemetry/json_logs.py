"""Log records as lines of JSON: one object a line, snake_case fields, times in UTC."""

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName", "asctime"}


class JsonFormatter(logging.Formatter):
    """Formats the records of `toolkeep` for machines that collect logs."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "timestamp": time,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = {name: value for name, value in vars(record).items() if name not in _PLAIN}
        line |= {name: value for name, value in fields.items() if name not in line}
        if isinstance(record.args, dict):
            line |= {name: value for name, value in record.args.items() if name not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> str:
    """Times in one form, that of `timestamp`."""
    return value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else str(value)
