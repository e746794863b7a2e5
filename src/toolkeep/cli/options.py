"""What every command shares: its options, its logs, its way of printing."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

import click

from toolkeep.errors import ToolkeepError

P = ParamSpec("P")
R = TypeVar("R")

LOG_LEVELS = ("debug", "info", "warning", "error")


def common(command: Callable[P, R]) -> Callable[P, R]:
    """`--json` and `--log-level`, and errors as one clear message with exit status 1."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS),
        default="error",
        show_default=True,
        help="Logs on stderr.",
    )
    @functools.wraps(command)
    def wrapped(*args: Any, log_level: str, **kwargs: Any) -> R:
        _log_to_stderr(log_level)
        try:
            return command(*args, **kwargs)
        except ToolkeepError as error:
            fail(error, as_json=bool(kwargs.get("as_json")))

    return wrapped  # type: ignore[return-value]


files = click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Definitions in JSON or YAML; may be given several times.",
)


def _log_to_stderr(level: str) -> None:
    import logging

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("%(levelname)s %(name)s: %(message)s %(tool_name)s", defaults={"tool_name": ""})
    )
    logger = logging.getLogger("toolkeep")
    logger.handlers = [handler]
    logger.setLevel(level.upper())


def fail(error: ToolkeepError, *, as_json: bool) -> NoReturn:
    """Say what happened and end with status 1."""
    if as_json:
        from toolkeep.errors import DefinitionError

        data: dict[str, Any] = {
            "success": False,
            "code": error.code.value,
            "message": error.message,
            "hint": error.hint,
        }
        if isinstance(error, DefinitionError):
            data["problems"] = [problem.to_dict() for problem in error.problems]
        print_json(data)
    else:
        click.echo(click.style("✗ ", fg="red") + str(error), err=True)
    sys.exit(1)


def print_json(data: Any) -> None:
    """Data on stdout, as JSON."""
    import json

    click.echo(json.dumps(data, indent=2, ensure_ascii=False))
