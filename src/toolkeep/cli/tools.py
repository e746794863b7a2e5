"""The tools that a command works on: the built-in ones and those of the files given."""

from collections.abc import Sequence
from pathlib import Path

from toolkeep.assembly import open_keep
from toolkeep.cli.options import say
from toolkeep.errors import ToolkeepError
from toolkeep.keep import Keep


def keep_with(files: Sequence[Path]) -> Keep:
    """A keep with the tools of the files; what cannot be used is named on stderr and left out."""
    keep = open_keep()
    for path in files:
        from toolkeep.sources.files import load_definitions

        for loaded in load_definitions(path):
            if loaded.definition is None:
                _skipped(loaded.name, loaded.error)
                continue
            try:
                keep.register(loaded.definition)
            except ToolkeepError as error:
                _skipped(loaded.name, error)
    return keep


def _skipped(name: str, error: ToolkeepError | None) -> None:
    say(f" skipped '{name}': {error}", label="!", color="yellow", err=True)
