"""The only file that imports every edge: what is wanted in, a ready keep out."""

from collections.abc import Sequence

from toolkeep.keep import Keep
from toolkeep.limits import DEFAULT_LIMITS, Limits
from toolkeep.tools.agent_hello_world import HelloWorldTool

BUILT_IN = (HelloWorldTool,)


def open_keep(
    *,
    services: Sequence[object] = (),
    limits: Limits = DEFAULT_LIMITS,
    include_actual_values: bool = True,
    built_in: bool = True,
) -> Keep:
    """A keep that is ready to use.

    `services` are handed to the constructors of agent-tool classes by type; `include_actual_values=False`
    keeps every value out of every error; `built_in=False` starts without the built-in tools.
    """
    keep = Keep(services=services, limits=limits, include_actual_values=include_actual_values)
    if built_in:
        keep.register(*BUILT_IN)
    return keep
