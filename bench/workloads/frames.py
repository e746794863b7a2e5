"""A plain function whose module imports pandas: named by reference, and run by the rivals."""

import pandas as pd


def total(a: int, b: int) -> int:
    """The sum, by way of a data frame."""
    return int(pd.DataFrame({"value": [a, b]})["value"].sum())
