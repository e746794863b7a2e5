"""Tools for bench/sandbox.py, in a module of their own: workers import it."""

from toolkeep import tool


@tool(side_effects=["None"])
def add_here(a: int, b: int) -> int:
    """Add in this process.

    Args:
        a: One number.
        b: Another one.
    """
    return a + b


@tool(side_effects=["None"], constraints={"required_isolation": "standard"})
def add_standard(a: int, b: int) -> int:
    """Add in a bounded process.

    Args:
        a: One number.
        b: Another one.
    """
    return a + b


@tool(side_effects=["None"], constraints={"required_isolation": "strict", "max_execution_time": 600})
def add_strict(a: int, b: int) -> int:
    """Add in a confined process.

    Args:
        a: One number.
        b: Another one.
    """
    return a + b


@tool(side_effects=["None"], constraints={"required_isolation": "restricted"})
def add_restricted(a: int, b: int) -> int:
    """Add in a process that may do nothing else.

    Args:
        a: One number.
        b: Another one.
    """
    return a + b
