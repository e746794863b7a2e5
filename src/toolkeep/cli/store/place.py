"""The store of a project."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from toolkeep.assembly import open_state, open_store, project_folder, read_configuration
from toolkeep.errors import StateUnusable
from toolkeep.storage.definition_store import SqlStore


@contextlib.contextmanager
def store_of(project: Path | None) -> Iterator[SqlStore]:
    """The store of a project, open."""
    root = project_folder(project)
    state = open_state(root)
    store = open_store(read_configuration(root, state), state)
    if store is None:
        raise StateUnusable("~", "there is no home that could hold a store", hint="set TOOLKEEP_HOME")
    with contextlib.closing(store):
        yield store
