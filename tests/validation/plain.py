"""Plain mode: the engine exactly as toolkeep compiles schemas with it, but nothing closed and nothing
guarded. Lives here so that the official suite can be run; no tool can reach it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson

from toolkeep.validation.dialect import Dialect
from toolkeep.validation.schema_engine import ENGINE_OPTIONS, ENGINES

REMOTE_BASE = "http://localhost:1234/"


def load_remotes(suite: Path) -> dict[str, Any]:
    """The documents that the suite's schemas refer to, by address."""
    folder = suite / "remotes"
    return {
        REMOTE_BASE + path.relative_to(folder).as_posix(): orjson.loads(path.read_bytes())
        for path in folder.rglob("*.json")
    }


def plain_validator(
    schema: Any, remotes: Mapping[str, Any], *, asserts_formats: bool
) -> jsonschema_rs.Validator:
    """A validator with toolkeep's own options, but for formats and preloaded remotes."""
    options = {
        **ENGINE_OPTIONS,
        "offline": False,
        "retriever": lambda address: remotes[address],
        "validate_formats": asserts_formats,
    }
    return ENGINES[Dialect.DRAFT_2020_12](schema, **options)
