"""A tool that the host can import and a worker cannot: what it says then is not for a model."""

import os

from toolkeep import tool

if "TMPDIR" in os.environ and os.environ["TMPDIR"].startswith("/box"):
    raise RuntimeError("the password is hunter2, in /srv/private")


@tool(side_effects=["None"], constraints={"required_isolation": "standard"})
def unloadable() -> int:
    """Never run."""
    return 1
