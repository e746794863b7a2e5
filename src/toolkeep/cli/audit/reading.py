"""Files that an audit command is given."""

from pathlib import Path

from toolkeep.errors import FileUnreadable


def read_text(path: Path) -> str:
    """The text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnreadable(str(path), getattr(error, "strerror", None) or "is not text") from error


def read_checkpoint(path: Path) -> str:
    """The text of a file; one that holds no checkpoint says nothing about the log."""
    from toolkeep.audit.checkpoint import Checkpoint
    from toolkeep.audit.errors import NoteInvalid
    from toolkeep.audit.note import Note

    text = read_text(path)
    try:
        Checkpoint.parse(Note.parse(text).text)
    except NoteInvalid as error:
        reason = f"is no checkpoint: {error.message}; `toolkeep audit checkpoint` prints one"
        raise FileUnreadable(str(path), reason) from error
    return text
