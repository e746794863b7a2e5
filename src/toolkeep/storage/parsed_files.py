"""Configuration files as they were parsed before, in the state folder: a large one takes a second.

Found by the hash of their bytes and by the program and parser (`checking_program`). What a file says is still
checked each time, and must be accepted.
"""

import hashlib
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Final

from toolkeep.json_values.yaml import Document, read_yaml
from toolkeep.storage.cache_folder import CacheFolder, checking_program

_FORMAT: Final = 1
_KEPT: Final = 8
"""Files: those of the user and the project, and their last edits."""


@lru_cache(maxsize=4)  # a command reads its configuration more than once, and nobody changes a document
def parse_once(state_folder: Path, raw: bytes, path: str) -> Document:
    """The parsed file; raises `FileUnreadable` as `read_yaml` does."""
    if not os.path.isdir(state_folder):  # noqa: PTH112 -- never raises; reading makes no state
        return read_yaml(raw, path)
    cache = CacheFolder(state_folder / "parsed", kept=_KEPT)
    try:
        facts = [_FORMAT, *checking_program(), hashlib.sha256(raw).hexdigest()]
    except OSError:
        return read_yaml(raw, path)
    try:
        return Document.of_data(json.loads(cache.read(facts) or b""), raw, path)
    except ValueError:
        document = read_yaml(raw, path)
        cache.write(facts, json.dumps(document.data).encode())
        return document
