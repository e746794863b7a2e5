"""A lone tool in the shape of one provider: no agent, no request around it."""

from typing import Any

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import DefinitionInvalid
from toolkeep.providers.export import Exported, Omitted, Options, gathered, prepare
from toolkeep.providers.vendors import vendor_of


def exported_alone(tool: RegisteredTool | ToolDefinition, provider: str, *, strict: bool = False) -> Exported:
    """The tool as a request takes it, with its losses; raises `DefinitionInvalid` where there is no form."""
    vendor = vendor_of(provider)
    prepared = prepare(tool, vendor, strict=strict)
    if isinstance(prepared, Omitted):
        raise DefinitionInvalid(prepared.tool, [prepared.problem])
    return gathered([prepared], vendor, Options(strict=strict))


def lone_definition(definition: ToolDefinition, provider: str) -> dict[str, Any]:
    """The definition alone, without what a request puts around it."""
    vendor = vendor_of(provider)
    prepared = prepare(definition, vendor, strict=False)
    if isinstance(prepared, Omitted):
        raise DefinitionInvalid(definition.name, [prepared.problem])
    return vendor.shape(prepared.shown)
