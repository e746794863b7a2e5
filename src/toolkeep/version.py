"""The version of the installed toolkeep; `pyproject.toml` is the one place where it is written."""

from pathlib import Path


def _installed() -> str:
    """Read the version from the metadata of the installation; unknown for a bare source tree."""
    # Metadata beside an installed package has it in its name. importlib.metadata takes 20 to 100 ms to load,
    # which everybody who starts an MCP server would wait for; only checkouts have none beside them.
    beside = Path(__file__).parent.parent.glob("toolkeep-*.dist-info")
    found = [path.name.removeprefix("toolkeep-").removesuffix(".dist-info") for path in beside]
    if len(found) == 1:
        return found[0]
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("toolkeep")
    except PackageNotFoundError:
        return "0+unknown"


__version__ = _installed()
