"""`toolkeep` and `python -m toolkeep`."""

import gc
import io
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from click import Group


def main() -> None:
    """Run the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="backslashreplace")  # a terminal without a ✓ is told all the same
    try:
        _load(sys.argv[1:])(prog_name="toolkeep")
    except KeyboardInterrupt:  # while the command was still loaded; click says the same later
        sys.exit("\nAborted!")
    except OSError as error:  # --help and --version too may find the disk full
        sys.exit(f"✗ {type(error).__name__}: {error.strerror or 'input or output failed'}")


def _load(words: list[str]) -> "Group":
    """The command with the file of the one that is called. All of it stays to the end, so that nobody looks
    through it for garbage, now or then: a seventh of the time of `toolkeep validate`."""
    gc.disable()
    from toolkeep.cli.main import cli, load_command

    load_command(*words[:1])
    gc.freeze()
    gc.enable()
    return cli


if __name__ == "__main__":
    # `python -m` looks for modules in the working folder first: a cloned project must not bring `click`.
    if not sys.flags.safe_path:
        sys.path.pop(0)
    main()
