"""A lone definition in the shape of one provider: no keep, no agent, no loss report."""

from typing import Any

from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import DefinitionInvalid
from toolkeep.providers.export import Omitted, prepare
from toolkeep.providers.vendors import vendor_of


def lone_definition(definition: ToolDefinition, provider: str) -> dict[str, Any]:
    """The definition as the provider takes it; raises `DefinitionInvalid` where it takes it in no form."""
    vendor = vendor_of(provider)
    prepared = prepare(definition, vendor, strict=False)
    if isinstance(prepared, Omitted):
        raise DefinitionInvalid(definition.name, [prepared.problem])
    return vendor.shape(prepared.shown)
