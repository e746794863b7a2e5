"""A stored definition as the columns of `tool_definitions`, both ways (STO-1). Knows no database.

`definition_hash` and `run_hash` cover the whole definition and what runs it: a row that was edited by hand,
or written in part, does not match and is not used. Whoever can write to the database can compute a hash, so
rows of a shared one carry a MAC under the servers' key, too.
"""

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from toolkeep.definitions.serialization import definition_from_dict
from toolkeep.definitions.vocabulary import Category
from toolkeep.errors import DefinitionError
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.storage.row_key import RowKey
from toolkeep.stores.definitions import BrokenDefinition, StoredDefinition

_PEOPLE: Final = uuid.UUID("7b0f7c0e-6a53-5d0e-9d9b-5b2f4f0f6f2a")
"""Namespace of the UUIDs that stand for the names of editors."""

_TEXTS: Final = ("name", "description", "version")
_JSON: Final = {
    "parameters_json": "parameters",
    "output_schema_json": "output_schema",
    "constraints_json": "constraints",
    "required_permissions_json": "required_permissions",
    "metadata_json": "metadata",
    "resource_bounds_json": "resource_bounds",
    "capabilities_json": "capabilities",
    "side_effects_json": "side_effects",
    "flow_json": "flow",
    "aliases_json": "aliases",
    "source_json": "source",
}
_WORDS: Final = ("result_type", "normalization", "determinism", "danger")
_FLAGS: Final = ("requires_confirmation", "idempotent", "sensitive", "client_executed")

COLUMNS: Final = (
    "id", "name", "description", "category", "parameters_json", "output_schema_json", "constraints_json",
    "required_permissions_json", "requires_confirmation", "version", "metadata_json", "is_built_in",
    "license_tier", "created_by", "created_at", "updated_at", "resource_bounds_json", "capabilities_json",
    "side_effects_json", "flow_json", "aliases_json", "source_json", "result_type", "normalization",
    "determinism", "danger", "idempotent", "sensitive", "client_executed", "usage_metadata", "enabled",
    "run_json", "definition_hash", "run_hash", "revision", "created_by_name", "updated_by",
    "updated_by_name", "mac",
)  # fmt: skip
"""Of both tables, in the order in which rows are read."""


def person_id(name: str) -> uuid.UUID | None:
    """The UUID of an editor's name: the same in every database."""
    return uuid.uuid5(_PEOPLE, name) if name else None


def to_row(stored: StoredDefinition, key: RowKey | None = None) -> dict[str, Any]:
    """The columns of a stored definition; with the key of the servers that share the database."""
    data = stored.definition.to_dict()
    return {
        **{text: data[text] for text in _TEXTS},
        **{column: _text(data.get(field)) for column, field in _JSON.items()},
        **{word: data.get(word) for word in _WORDS},
        **{flag: bool(data.get(flag)) for flag in _FLAGS},
        "id": uuid.UUID(stored.id),
        "category": stored.definition.category.number,
        "usage_metadata": data.get("usage_metadata"),
        "enabled": stored.definition.enabled,
        "run_json": _text(stored.run),
        "definition_hash": stored.definition.hash,
        "run_hash": canonical_hash(stored.run),
        "is_built_in": stored.is_built_in,
        "license_tier": stored.license_tier,
        "revision": stored.revision,
        "created_by": person_id(stored.created_by),
        "created_by_name": stored.created_by or None,
        "created_at": stored.created_at,
        "updated_by": person_id(stored.updated_by),
        "updated_by_name": stored.updated_by or None,
        "updated_at": stored.updated_at,
        "mac": key.mac("definition", *_deciding(stored)).hex() if key else None,
    }


def _deciding(stored: StoredDefinition) -> tuple[str, ...]:
    """What a MAC covers: all but who changed it, and when."""
    flags = stored.definition.enabled, stored.is_built_in, stored.license_tier, stored.revision
    return stored.id, stored.definition.hash, canonical_hash(stored.run), repr(flags)


def from_row(row: Mapping[str, Any], key: RowKey | None = None) -> StoredDefinition | BrokenDefinition:
    """The definition in a row; one that cannot be parsed, or does not match its hash, is broken.

    With the key of the servers, so is one that none of them wrote.
    """
    try:
        return _ours(_read(row), row["mac"] or "", key)
    except (ValueError, TypeError, RecursionError, DefinitionError) as error:
        reason = "cannot be read" if not isinstance(error, _Unfit) else str(error)
        return BrokenDefinition(name=str(row.get("name"))[:64], reason=reason)


def _ours(stored: StoredDefinition, mac: str, key: RowKey | None) -> StoredDefinition:
    if key is not None and not key.is_authentic(bytes.fromhex(mac), "definition", *_deciding(stored)):
        raise _Unfit("was not written by a server with this database.key (see: toolkeep store seal)")
    return stored


class _Unfit(ValueError):
    """A row that something else than toolkeep changed."""


def _read(row: Mapping[str, Any]) -> StoredDefinition:
    data: dict[str, Any] = {field: json.loads(row[column]) for column, field in _JSON.items() if row[column]}
    data |= {text: row[text] for text in (*_TEXTS, *_WORDS, "usage_metadata") if row[text] is not None}
    data |= {flag: bool(row[flag]) for flag in _FLAGS}
    data |= {"category": Category.read(int(row["category"])).value, "enabled": bool(row["enabled"])}
    definition = definition_from_dict(data)
    run = json.loads(row["run_json"]) if row["run_json"] else None
    hashes = (row["definition_hash"], definition.hash), (row["run_hash"], canonical_hash(run))
    if any(noted and noted != found for noted, found in hashes):
        raise _Unfit("was changed in the database by something else than toolkeep")
    return StoredDefinition(
        id=str(uuid.UUID(str(row["id"]))),
        definition=definition,
        run=run,
        is_built_in=bool(row["is_built_in"]),
        license_tier=int(row["license_tier"]),
        revision=int(row["revision"]),
        created_by=row["created_by_name"] or "",
        created_at=read_time(row["created_at"]),
        updated_by=row["updated_by_name"] or "",
        updated_at=read_time(row["updated_at"]),
    )


def read_time(value: Any) -> datetime:
    """A time as either database gives it, in UTC."""
    read = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(read, datetime):
        raise _Unfit("holds a time that is none")
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


def _text(value: Any) -> str | None:
    """JSON as text, in the order in which it was written; None for a field at its default."""
    return None if value is None else json.dumps(value, separators=(",", ":"))
