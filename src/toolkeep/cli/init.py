"""`toolkeep init`: write a commented configuration, its JSON Schema, and policies with examples."""

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from toolkeep.cli.init_files import CONFIG, EXAMPLES, POLICIES
from toolkeep.cli.isolation_notice import warn_if_unconfined
from toolkeep.cli.options import common, is_terminal, print_json, project, say, say_done, write_new
from toolkeep.config.paths import PROJECT_FILE
from toolkeep.config.schema import editor_schema
from toolkeep.errors import FileUnreadable
from toolkeep.host.files import check_inside, is_there

SCHEMA_FILE = PROJECT_FILE.with_name("config.schema.json")
POLICY_FILE = PROJECT_FILE.parent / "policies" / "main.cedar"
EXAMPLES_FILE = POLICY_FILE.with_name("main.examples.yml")


@click.command("init")
@project
@common
def command(project: Path | None, *, as_json: bool) -> None:
    """Write .agent/config.yml and .agent/policies with comments, and a JSON Schema for editors.

    Nothing that exists is overwritten. On a terminal, exactly what is written is accepted with it; elsewhere
    the policies count once you have accepted them.
    """
    root = project or Path.cwd()
    texts = {
        root / PROJECT_FILE: CONFIG,
        root / SCHEMA_FILE: json.dumps(editor_schema(), indent=2) + "\n",
        root / POLICY_FILE: POLICIES,
        root / EXAMPLES_FILE: EXAMPLES,
    }
    for path in texts:
        check_inside(root, path)
        if is_there(path):
            raise FileUnreadable(str(path), "exists already; edit it, or move it away")
    for path, text in texts.items():
        write_new(path, text)
    is_accepted = is_terminal(sys.stdin) and _accept(root, texts)
    if as_json:
        print_json({"written": list(map(str, texts)), "accepted": is_accepted})
        return
    for path in texts:
        say_done(f"wrote {path}")
    until = "accept them with `toolkeep accept`; until then no call is permitted."
    accepted = "They are accepted as written. Next: read the policies."
    say("", accepted if is_accepted else f"Next: read the policies and {until}")
    say("Then describe tools in config.yml, and see them with `toolkeep list`.")
    say("`toolkeep new NAME` writes a tool in Python, and says how to call it.")
    warn_if_unconfined()


def _accept(root: Path, texts: Mapping[Path, str]) -> bool:
    """Accept exactly these texts; returns whether that could be stored.

    They are read from a temporary folder of our own. The files in the project may have been changed by then,
    and are not accepted in that case: their hash differs.
    """
    from toolkeep.keep.open import open_state, project_folder, read_configuration

    place = project_folder(root)
    state = open_state(place)
    written = next((f for f in read_configuration(place, state).files if f.is_project), None)
    if state is None or written is None:
        return False
    with tempfile.TemporaryDirectory(prefix="toolkeep-init-") as folder:
        for path, text in texts.items():
            write_new(Path(folder) / path.relative_to(root), text)
        (file,) = (f for f in read_configuration(Path(folder), None).files if f.is_project)
    state.accept(written.path, file.seal, file.content)
    return written.seal == file.seal
