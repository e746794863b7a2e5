"""A home folder for one run, so that a keep finds nobody's configuration and leaves nothing behind."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def empty_home() -> Iterator[Path]:
    """For this process and its children; a keep remembers its pins and switches below it."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="toolkeep-bench-") as folder:
        for name in ("TOOLKEEP_HOME", "XDG_STATE_HOME"):
            os.environ.pop(name, None)
        os.environ["HOME"] = folder
        try:
            yield Path(folder)
        finally:
            os.environ.clear()
            os.environ.update(before)
