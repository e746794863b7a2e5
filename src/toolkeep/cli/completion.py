"""`toolkeep completion`: print the completion script for a shell."""

import click
from click.shell_completion import get_completion_class

from toolkeep.cli.options import common, print_json

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@common
@click.pass_context
def command(ctx: click.Context, shell: str, *, as_json: bool) -> None:
    """Print the completion script for SHELL.

    For bash, add to ~/.bashrc: eval "$(toolkeep completion bash)"
    """
    completion = get_completion_class(shell)
    if completion is None:
        raise click.UsageError(f"click knows no completion for {shell}.")
    script = completion(ctx.find_root().command, {}, "toolkeep", "_TOOLKEEP_COMPLETE").source()
    if as_json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)
