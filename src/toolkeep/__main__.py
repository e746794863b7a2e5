"""`toolkeep` and `python -m toolkeep`."""


def main() -> None:
    """Run the command."""
    from toolkeep.cli.main import cli

    cli(prog_name="toolkeep")


if __name__ == "__main__":
    main()
