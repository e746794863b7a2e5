"""Shared options, logging and output of all commands."""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import click

from toolkeep.errors import ToolkeepError
from toolkeep.text.display import visible

if TYPE_CHECKING:
    import logging

P = ParamSpec("P")
R = TypeVar("R")

LOG_LEVELS = ("debug", "info", "warning", "error", "off")


def common(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--json` and `--log-level`, and report errors as one message with exit status 1."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS),
        default="off",
        show_default=True,
        help="Log to stderr from this level.",
    )
    @functools.wraps(command)
    def wrapped(*args: Any, log_level: str, **kwargs: Any) -> R:
        with _logs_on_stderr(log_level):
            try:
                return command(*args, **kwargs)
            except ToolkeepError as error:
                fail(error, as_json=bool(kwargs.get("as_json")))
            except BrokenPipeError:
                raise  # click exits quietly: the reader has closed the pipe
            except OSError as error:
                what = error.filename or type(error).__name__
                reason = error.strerror or "input or output failed"
                say_failed(f"{what}: {reason}", err=True)
                sys.exit(1)

    return wrapped  # type: ignore[return-value]  # click adds the parameters


project = click.option(
    "--project",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Project folder; by default the nearest one with .agent/config.yml.",
)

files = click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of definitions in JSON or YAML; repeatable.",
)

tools_option = click.option(
    "--tools",
    "tools",
    multiple=True,
    metavar="FILE",
    help="A Python file or module of @tool functions; may be given several times.",
)
tools_argument = click.argument("tools", nargs=-1, metavar="[FILE]...")


@contextlib.contextmanager
def _logs_on_stderr(level: str) -> Iterator[None]:
    import logging

    logger = logging.getLogger("toolkeep")
    before = logger.handlers, logger.level
    handler = logging.StreamHandler(sys.stderr)
    handler.format = _line  # type: ignore[method-assign]  # a formatter in one line
    logger.handlers = [handler]
    logger.setLevel(logging.CRITICAL + 1 if level == "off" else level.upper())
    try:
        yield
    finally:
        logger.handlers = before[0]
        logger.setLevel(before[1])


def _line(record: "logging.LogRecord") -> str:
    """Format a log record on one line: message, then fields."""
    import logging

    plain = vars(logging.makeLogRecord({})).keys() | {"message", "taskName"}
    named = vars(record) if not record.args else {}  # a message with arguments contains them
    fields = [f"{name}={visible(str(value))}" for name, value in named.items() if name not in plain]
    return " ".join([record.levelname.lower(), record.name + ":", visible(record.getMessage()), *fields])


def is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal; False if it is closed."""
    return stream is not None and stream.isatty()


def is_agreed(question: str) -> bool:
    """Ask yes or no on the terminal; Ctrl-C and end of input are a no."""
    try:
        return click.confirm(question, default=False, err=True)
    except click.Abort:
        click.echo(err=True)
        return False


def fail(error: ToolkeepError, *, as_json: bool) -> NoReturn:
    """Print an error and exit with status 1."""
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
        say_failed(*str(error).split("\n"), err=True)
    sys.exit(1)


def say(*lines: str, label: str = "", color: str | None = None, err: bool = False) -> None:
    """Print lines after a coloured label, with control characters made visible.

    Names and texts come from tools, servers and models: an escape sequence could rewrite what stands on the
    screen (hide a warning, fake a prompt), and a newline in a name could start a line that looks like ours.
    So every argument is one line; callers split text that has several.
    """
    shown = click.style(label, fg=color) if color else label
    click.echo(shown + "\n".join(map(visible, lines)), err=err)


def say_done(text: str, *more: str, err: bool = False) -> None:
    """Print a success."""
    say(f" {text}", *more, label="✓", color="green", err=err)


def say_failed(text: str, *more: str, err: bool = False) -> None:
    """Print a failure."""
    say(f" {text}", *more, label="✗", color="red", err=err)


def warn(text: str, *more: str, err: bool = True) -> None:
    """Print a warning."""
    say(f" {text}", *more, label="!", color="yellow", err=err)


def print_json(data: Any) -> None:
    """Print JSON on stdout."""
    import json

    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    has_all = encoding.lower() in ("utf-8", "utf8")  # otherwise as \\u escapes
    say(*json.dumps(data, indent=2, ensure_ascii=not has_all).split("\n"))


def write_new(path: Path, text: str) -> None:
    """Write a file that must not exist."""
    from toolkeep.errors import FileUnreadable

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Exclusive creation: neither an existing file nor a planted link is ever overwritten.
        file = path.open("x", encoding="utf-8")
    except FileExistsError as error:
        raise FileUnreadable(
            str(path), "exists already; choose another name, or move the file away"
        ) from error
    except OSError as error:
        raise FileUnreadable(str(path), error.strerror or "cannot be written") from error
    try:
        with file:
            file.write(text)
    except OSError as error:
        path.unlink()  # half a file would block the next attempt
        raise FileUnreadable(str(path), error.strerror or "cannot be written") from error
