"""The live tool beside `frames.total`, in a module of its own: the host imports it, too."""

from toolkeep import tool
from workloads import frames


@tool(side_effects=["None"], constraints={"required_isolation": "strict", "max_execution_time": 600})
def total_strict(a: int, b: int) -> int:
    """Add in a confined process, by way of a data frame.

    Args:
        a: One number.
        b: Another one.
    """
    return frames.total(a, b)
