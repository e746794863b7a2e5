"""`toolkeep init`: a commented configuration, its schema for editors, and policies with examples."""

import json
from pathlib import Path

import click

from toolkeep.cli.init_files import CONFIG, EXAMPLES, POLICIES
from toolkeep.cli.options import common, print_json, project, say, say_done, write_new
from toolkeep.config.paths import PROJECT_FILE
from toolkeep.config.schema import editor_schema
from toolkeep.errors import FileUnreadable
from toolkeep.files import is_there

SCHEMA_FILE = PROJECT_FILE.with_name("config.schema.json")
POLICY_FILE = PROJECT_FILE.parent / "policies" / "main.cedar"
EXAMPLES_FILE = POLICY_FILE.with_name("main.examples.yml")


@click.command("init")
@project
@common
def command(project: Path | None, *, as_json: bool) -> None:
    """Write .agent/config.yml and .agent/policies with comments, and a JSON Schema for editors.

    Nothing that exists is overwritten. The policies count once you have accepted them.
    """
    root = project or Path.cwd()
    texts = {
        root / PROJECT_FILE: CONFIG,
        root / SCHEMA_FILE: json.dumps(editor_schema(), indent=2) + "\n",
        root / POLICY_FILE: POLICIES,
        root / EXAMPLES_FILE: EXAMPLES,
    }
    for path in texts:
        if is_there(path):
            raise FileUnreadable(str(path), "exists already; edit it, or move it away")
    for path, text in texts.items():
        write_new(path, text)
    if as_json:
        print_json({"written": list(map(str, texts))})
        return
    for path in texts:
        say_done(f"wrote {path}")
    say(
        "", "Next: read the policies and accept them with `toolkeep accept`; until then no call is permitted."
    )
    say("Then describe tools in config.yml, and see them with `toolkeep list`.")
    say("`toolkeep new NAME` writes a tool in Python, which your own code registers.")
