"""An empty repository in the scratch folder that borrows the objects of another (git alternates), to push
from.

The remotes, rewritten URLs, proxies, certificates, helpers and hooks of the other repository are not even
read: each could send the branch, or the credentials, elsewhere.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.tools.catalog import GIT
from toolkeep.tools.git import ENVIRONMENT, SETTINGS, Repository, as_environment
from toolkeep.tools.run_command import Run, run_program
from toolkeep.tools.tool_path import ToolPath

SECONDS: Final = 110.0
"""Below the tool's own deadline of 120 s, so that the message is about git and not about the worker."""
_PROXIES: Final = ("https_proxy", "HTTPS_PROXY")
_ODD: Final = ("#", '"')
"""The first characters of a line in git's list of alternates that is no plain path."""


class ObjectAlternates:
    """A repository without settings of its own."""

    def __init__(self, folder: str) -> None:
        self.git_dir = f"{folder}/push.git"
        self._folder = ToolPath("the scratch folder", folder)

    def borrow(self, objects: str) -> None:
        """Find objects in that folder too."""
        if "\n" in objects or objects.startswith(_ODD):
            raise ToolFailed("The repository is in a folder whose name git cannot borrow from")
        with Path(f"{self.git_dir}/objects/info/alternates").open("a", encoding="utf-8") as file:
            file.write(f"{objects}\n")

    def run(
        self,
        command: str,
        *arguments: str,
        git_dir: str = "",
        settings: Mapping[str, str] | None = None,
        protocols: str = "none",
    ) -> Run:
        """Run git there, or in another repository, with overriding settings."""
        return run_program(
            ["git", "--no-pager", f"--git-dir={git_dir or self.git_dir}", command, *arguments],
            program=GIT,
            name="git",
            folder=self._folder,
            seconds=SECONDS,
            environment=environment(settings, protocols),
        )

    def said(self, command: str, *arguments: str, git_dir: str = "") -> str:
        """The output of git; `ToolFailed` if it fails."""
        run = self.run(command, *arguments, git_dir=git_dir)
        if run.status != 0:
            raise ToolFailed(f"git {command} did not work ({run.ending}):\n{run.text().strip()[-800:]}")
        return run.text().strip()


def environment(settings: Mapping[str, str] | None = None, protocols: str = "none") -> dict[str, str]:
    """The whole environment of git: settings, allowed protocols, and the egress proxy."""
    proxies = {name: os.environ[name] for name in _PROXIES if name in os.environ}
    told = {**ENVIRONMENT, "GIT_ALLOW_PROTOCOL": protocols, **proxies}
    return {**told, **as_environment({**SETTINGS, **(settings or {})})}


@contextmanager
def borrowing(repository: Repository) -> Iterator[ObjectAlternates]:
    """A repository with the objects of another, deleted after the call."""
    with tempfile.TemporaryDirectory() as folder:
        lender = ObjectAlternates(folder)
        form = repository.said("rev-parse", "--show-object-format").strip()
        lender.said("init", "--quiet", "--bare", "--template=", f"--object-format={form}")
        Path(f"{lender.git_dir}/objects/info").mkdir(exist_ok=True)
        lender.borrow(_path_in(repository, "objects"))
        shallow = Path(_path_in(repository, "shallow"))
        if shallow.is_file():  # where its history is shallow
            Path(f"{lender.git_dir}/shallow").write_bytes(shallow.read_bytes())
        yield lender


def _path_in(repository: Repository, name: str) -> str:
    return repository.said("rev-parse", "--path-format=absolute", "--git-path", name).rstrip("\n")
