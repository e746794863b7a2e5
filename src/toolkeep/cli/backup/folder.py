"""The state folder that a backup is of, or goes to."""

from pathlib import Path

from toolkeep.assembly import open_state, project_folder
from toolkeep.errors import BackupRefused


def folder_of(project: Path | None) -> Path:
    """The state folder of a project, which need not exist."""
    state = open_state(project_folder(project))
    if state is None:
        raise BackupRefused("~", "there is no home that could hold a state", hint="set TOOLKEEP_HOME")
    return state.folder
