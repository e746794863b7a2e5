"""What every test may use: the shared data, and a keep with the tool of the strictness table."""

import os
from pathlib import Path
from typing import Literal

import pytest

from toolkeep import Keep, open_keep, tool

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real tools, calls and official suites; absent outside the project's own workplace."""
    if SHARED_DATA.is_dir():
        return SHARED_DATA
    if os.environ.get("CI"):
        pytest.fail(f"the shared test data is missing: {SHARED_DATA.name}")
    pytest.skip("the shared test data is not here")


@tool
def transfer(
    account: str,
    amount: int,
    urgent: bool = False,
    tags: list[str] | None = None,
    mode: Literal["fast", "safe"] = "fast",
) -> dict[str, object]:
    """Move money to an account.

    Args:
        account: The account that gets the money.
        amount: How much, in cents.
        urgent: Whether it must arrive today.
        tags: Words to find it again.
        mode: How it travels.
    """
    return {"account": account, "amount": amount, "urgent": urgent, "tags": tags, "mode": mode}


@pytest.fixture
def keep() -> Keep:
    """A fresh keep that holds `transfer`."""
    keep = open_keep()
    keep.register(transfer)
    return keep
