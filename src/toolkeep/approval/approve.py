"""The door of approval: a permitted call becomes an `ApprovedCall`, or a refusal. Nothing else makes one.

Until people can be asked, a call that would have to be asked about is refused.
"""

from toolkeep.calls import ApprovedCall, PermittedCall, Refusal
from toolkeep.errors import Code
from toolkeep.refusals import refuse


def approve(call: PermittedCall) -> ApprovedCall | Refusal:
    """Let a call pass that nobody need be asked about."""
    if call.tool.definition.requires_confirmation or call.request.options.requires_confirmation:
        message = f"Tool '{call.tool.name}' needs a person's confirmation, and nobody can be asked"
        return refuse(call.request, Code.APPROVAL_NEEDED, message, "Do without it, or ask the operator.")
    return ApprovedCall(permitted=call)
