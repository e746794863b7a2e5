"""An empty repository in the scratch folder that borrows the objects of another, to push from.

So that the remotes, rewritten addresses, proxies, certificates, helpers and hooks of the other are not even
read.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from toolkeep.definitions.context import ToolFailed
from toolkeep.tools.catalogue import GIT
from toolkeep.tools.gitting import ENVIRONMENT, SETTINGS, Repository, as_environment
from toolkeep.tools.place import Place
from toolkeep.tools.running import Run, run_program

SECONDS: Final = 110.0
_PROXIES: Final = ("https_proxy", "HTTPS_PROXY")
_ODD: Final = ("#", '"')
"""What begins a line of git's list of lenders that is no plain path."""


class Lender:
    """A repository without settings of its own."""

    def __init__(self, folder: str) -> None:
        self.git_dir = f"{folder}/push.git"
        self._folder = Place("the scratch folder", folder)

    def borrow(self, objects: str) -> None:
        """Find objects there too."""
        if "\n" in objects or objects.startswith(_ODD):
            raise ToolFailed("The repository lies in a folder whose name git cannot borrow from")
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
        """Run git there, or in another repository, with settings of ours that win."""
        return run_program(
            ["git", "--no-pager", f"--git-dir={git_dir or self.git_dir}", command, *arguments],
            program=GIT,
            name="git",
            folder=self._folder,
            seconds=SECONDS,
            environment=environment(settings, protocols),
        )

    def said(self, command: str, *arguments: str, git_dir: str = "") -> str:
        """What git wrote; `ToolFailed` where it did not work."""
        run = self.run(command, *arguments, git_dir=git_dir)
        if run.status != 0:
            raise ToolFailed(f"git {command} did not work ({run.ending}):\n{run.text().strip()[-800:]}")
        return run.text().strip()


def environment(settings: Mapping[str, str] | None = None, protocols: str = "none") -> dict[str, str]:
    """All that git gets: our settings, which protocols it may speak, and the way out."""
    proxies = {name: os.environ[name] for name in _PROXIES if name in os.environ}
    told = {**ENVIRONMENT, "GIT_ALLOW_PROTOCOL": protocols, **proxies}
    return {**told, **as_environment({**SETTINGS, **(settings or {})})}


@contextmanager
def borrowing(repository: Repository) -> Iterator[Lender]:
    """One that has the objects of a repository, and goes with the call."""
    with tempfile.TemporaryDirectory() as folder:
        lender = Lender(folder)
        form = repository.said("rev-parse", "--show-object-format").strip()
        lender.said("init", "--quiet", "--bare", "--template=", f"--object-format={form}")
        Path(f"{lender.git_dir}/objects/info").mkdir(exist_ok=True)
        lender.borrow(_path_in(repository, "objects"))
        shallow = Path(_path_in(repository, "shallow"))
        if shallow.is_file():  # where its history was cut off
            Path(f"{lender.git_dir}/shallow").write_bytes(shallow.read_bytes())
        yield lender


def _path_in(repository: Repository, name: str) -> str:
    return repository.said("rev-parse", "--path-format=absolute", "--git-path", name).rstrip("\n")
