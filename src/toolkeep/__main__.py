"""`toolkeep` and `python -m toolkeep`."""

import sys


def main() -> None:
    """Run the command."""
    from toolkeep.cli.main import cli

    try:
        cli(prog_name="toolkeep")
    except OSError as error:  # --help and --version too may find the disk full
        sys.exit(f"✗ {type(error).__name__}: {error.strerror or 'input or output failed'}")


if __name__ == "__main__":
    main()
