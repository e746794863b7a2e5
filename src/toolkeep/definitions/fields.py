"""The fields of a definition that `@tool` takes, in their data form, for type checkers."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class ToolFields(TypedDict, total=False):
    """What may be said of a tool beside its name and description; each is optional."""

    parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    version: str
    category: str
    output_schema: Mapping[str, Any] | None
    result_type: str | None
    normalization: str | None
    constraints: Mapping[str, Any]
    resource_bounds: Mapping[str, Any]
    required_permissions: Sequence[str]
    capabilities: Sequence[str]
    side_effects: Sequence[str] | str | None
    effects: Sequence[str] | str | None
    determinism: str | None
    idempotent: bool
    danger: str | None
    requires_confirmation: bool
    sensitive: bool
    client_executed: bool
    usage_metadata: str
    enabled: bool
    aliases: Sequence[str]
    metadata: Mapping[str, Any]
