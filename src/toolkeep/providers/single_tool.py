"""One tool in the format of a provider, without an agent or a request."""

from typing import Any

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import DefinitionInvalid
from toolkeep.providers.export import Exported, Omitted, Options, gathered, prepare
from toolkeep.providers.vendor_registry import vendor_of


def exported_alone(tool: RegisteredTool | ToolDefinition, provider: str, *, strict: bool = False) -> Exported:
    """The tool as a request takes it, with its losses; raises `DefinitionInvalid` if it cannot be
    expressed."""
    vendor = vendor_of(provider)
    prepared = prepare(tool, vendor, strict=strict)
    if isinstance(prepared, Omitted):
        raise DefinitionInvalid(prepared.tool, [prepared.problem])
    return gathered([prepared], vendor, Options(strict=strict))


def lone_definition(definition: ToolDefinition, provider: str) -> dict[str, Any]:
    """The definition only, without what a request adds."""
    vendor = vendor_of(provider)
    prepared = prepare(definition, vendor, strict=False)
    if isinstance(prepared, Omitted):
        raise DefinitionInvalid(definition.name, [prepared.problem])
    return vendor.shape(prepared.shown)
