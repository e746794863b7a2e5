"""A plain function that needs nothing: named by reference, and run by the rivals."""


def add(a: int, b: int) -> int:
    """The sum."""
    return a + b
