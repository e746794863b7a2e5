"""The policies that a keep has of itself, in Cedar.

`ALWAYS` is part of every set. `WITHOUT_POLICIES` permits what nobody wrote policies about: then capabilities
and approvals alone decide. Who writes policies writes the permits too.
"""

from typing import Final

from toolkeep.policy.settings import PolicySource

ALWAYS: Final = PolicySource(
    name="toolkeep",
    is_ours=True,
    text="""
@id("toolkeep.see")
permit (principal, action == Action::"see", resource);

@id("toolkeep.permissions")
@reason("the agent lacks a permission that the tool requires")
forbid (principal, action == Action::"call", resource)
unless { principal.permissions.containsAll(resource.requires) };
""",
)

WITHOUT_POLICIES: Final = PolicySource(
    name="toolkeep, without policies of yours",
    is_ours=True,
    text="""
@id("toolkeep.call")
permit (principal, action == Action::"call", resource);
""",
)
