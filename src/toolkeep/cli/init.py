"""`toolkeep init`: a commented configuration, and its schema for editors."""

import json
from pathlib import Path

import click

from toolkeep.cli.options import common, print_json, project, say, write_new
from toolkeep.config.paths import PROJECT_FILE
from toolkeep.config.schema import editor_schema
from toolkeep.errors import FileUnreadable

SCHEMA_FILE = PROJECT_FILE.with_name("config.schema.json")

TEMPLATE = """\
# yaml-language-server: $schema=config.schema.json
#
# Configuration of toolkeep for this project; the same keys in ~/.agent/config.yml are for all of yours.
# Values may use ${NAME} and ${NAME:-default} from the environment.
# A file that runs, grants or loosens something counts once you have accepted it: toolkeep accept

# What the licence allows: core, writer_pro, teams or enterprise.
# tier: enterprise

# tool_registry:
#   # Whether errors may show the values that they are about.
#   include_actual_values: true
#
#   # At which level refused calls are logged: debug, info, warning or error.
#   validation_failure_log_level: warning
#
#   # Tools of your own.
#   custom_tools:
#     - name: custom_greeting
#       version: '1.0.0'
#       description: Generates a personalized greeting message
#       parameters:
#         type: object
#         properties:
#           name:
#             type: string
#             description: Name of the person to greet
#             maxLength: 100
#         required: [name]
#       run:
#         command: [./bin/greet]
#
#   # Providers of other packages that may bring tools.
#   providers: [my_provider]

# Tools that never answer: name for all versions, or name@version.
# disabled_tools: [agent_hello_world]

# What each agent holds.
# agents:
#   writer:
#     capabilities: ['fs.read:./docs']
"""


@click.command("init")
@project
@common
def command(project: Path | None, *, as_json: bool) -> None:
    """Write .agent/config.yml with comments, and a JSON Schema of it for editors.

    Nothing that exists is overwritten.
    """
    root = project or Path.cwd()
    config, schema = root / PROJECT_FILE, root / SCHEMA_FILE
    for path in (config, schema):
        if path.exists():
            raise FileUnreadable(str(path), "exists already; edit it, or move it away")
    write_new(config, TEMPLATE)
    write_new(schema, json.dumps(editor_schema(), indent=2) + "\n")
    if as_json:
        print_json({"written": [str(config), str(schema)]})
        return
    say(f" wrote {config}", label="✓", color="green")
    say(f" wrote {schema}", label="✓", color="green")
    say("\nNext: describe tools in it, and see them with `toolkeep list`.")
    say("`toolkeep new NAME` writes a tool in Python, which your own code registers.")
