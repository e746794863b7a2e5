"""Resolving and installing the packages of a server, while a person is present."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from toolkeep.cli.config_edit import check_agreed
from toolkeep.cli.options import P, R, say, warn
from toolkeep.cli.progress import progress
from toolkeep.errors import FileUnreadable, ImportRefused, NotAccepted, StateUnusable
from toolkeep.keep.open import open_state
from toolkeep.mcp_client.packages.confined_install import ConfinedInstall, Resolution
from toolkeep.mcp_client.packages.package_trees import PackageTrees, check_tree
from toolkeep.mcp_client.packages.pinned_packages import PinnedPackages
from toolkeep.mcp_client.packages.runner_commands import PackageCommand, read_command
from toolkeep.mcp_client.pinned_tools import read_listing
from toolkeep.storage.state_folder import protected_folder
from toolkeep.text.display import counted

if TYPE_CHECKING:
    from toolkeep.mcp_client.packages.npm import Npm
    from toolkeep.mcp_client.packages.pypi import Pip

MIN_RELEASE_AGE_DAYS: Final = 7
"""Most hijacked releases were found out and removed within days."""


def package_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options that loosen how packages are installed."""
    new = click.option(
        "--allow-new", is_flag=True, help="Install package versions that are younger than seven days."
    )
    scripts = click.option(
        "--allow-scripts",
        multiple=True,
        metavar="PACKAGE",
        help="Run the install scripts of this npm package, confined; repeatable.",
    )
    return new(scripts(command))


class InstallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a person allows."""

    allow_new: bool = False
    """Versions that are younger than `MIN_RELEASE_AGE_DAYS`."""
    allow_scripts: tuple[str, ...] = ()
    """Packages whose install scripts may run, confined."""
    as_json: bool = False


def trees_of(root: Path) -> PackageTrees:
    """The installed trees of a project's keep."""
    return PackageTrees(state_path(root))


def state_path(root: Path) -> Path:
    """The state folder, in which packages are installed."""
    state = open_state(root)
    if state is None:
        raise StateUnusable("~", "there is no state folder to install packages in", hint="set TOOLKEEP_HOME")
    return Path(state.folder)


@contextmanager
def resolved_packages(
    root: Path, entry: Mapping[str, Any], options: InstallOptions
) -> Iterator[PinnedPackages | None]:
    """Resolve what a server needs, as the registry has it now, and install it; None for other programs.

    What is installed is removed again if the body fails. If it exits, since the server was only observed, the
    packages stay for an hour, for the command that adds it.
    """
    command = read_command(tuple(entry.get("command") or ()))
    if command is None:
        yield None
        return
    trees = trees_of(root)
    for digest in trees.forget_expired():
        discard_packages(root, digest)
    wanted = msgspec.structs.replace(command, arguments=())
    key = sha256(msgspec.json.encode([wanted, options.allow_new, options.allow_scripts])).hexdigest()
    packages = trees.recall(key) or _resolve(trees, command, options)
    if not options.as_json:
        say(f"  {counted(len(packages.locked()), 'package')}, {_headline(command, packages)}")
    try:
        yield packages
    except SystemExit:
        trees.remember(key, packages)
        raise
    except BaseException:
        discard_packages(root, packages.digest)
        raise


def _resolve(trees: PackageTrees, command: PackageCommand, options: InstallOptions) -> PinnedPackages:
    manager = _manager(command.ecosystem)
    before = None if options.allow_new else datetime.now(UTC) - timedelta(days=MIN_RELEASE_AGE_DAYS)
    with trees.staging() as folder:
        install = ConfinedInstall(folder, manager.registry)
        with progress("Resolving its packages"):
            found = manager.resolve(install, command, before)
        _ask_about_age(found, options)
        pinned = _with_scripts(found.pinned, options.allow_scripts)
        _install(manager, install, trees, pinned)
    return pinned


def install_pinned(root: Path, pinned: PinnedPackages | None) -> PinnedPackages | None:
    """Install a pinned tree, unless it is there and whole; every hash is compared."""
    if pinned is None:
        return None
    trees = trees_of(root)
    try:
        check_tree(trees.path(pinned.digest), with_hashes=True)
    except ValueError:
        manager = _manager(pinned.ecosystem)
        with trees.staging() as folder:
            _install(manager, ConfinedInstall(folder, manager.registry), trees, pinned)
    return pinned


def remove_unused(root: Path, used: set[str]) -> None:
    """Remove the trees that no list of the project names; not where projects share a state folder."""
    state = state_path(root)
    if protected_folder(state) == state:
        return
    trees = PackageTrees(state)
    for listing in (root / ".agent").glob("*.mcp.json"):
        used |= packages_of(listing)
    for digest in trees.digests() - used:
        trees.remove(digest)


def discard_packages(root: Path, digest: str) -> None:
    """Remove an installed tree, unless a list of the project names it."""
    named = set[str]().union(*map(packages_of, (root / ".agent").glob("*.mcp.json")))
    if digest not in named:
        trees_of(root).remove(digest)


def packages_of(listing: Path) -> set[str]:
    """The installed tree that a list names, if any."""
    try:
        packages = read_listing(listing)[0].packages
    except FileUnreadable:
        return set()
    return {packages.digest} if packages is not None else set()


def _install(
    manager: "Npm | Pip", install: ConfinedInstall, trees: PackageTrees, pinned: PinnedPackages
) -> None:
    with progress("Installing its packages"):
        tree = manager.install(install, pinned)
        if not (tree / pinned.program).is_file():
            raise ImportRefused("its packages", f"do not bring the program {pinned.program}")
        trees.keep(pinned.digest, tree)


def _manager(ecosystem: str) -> "Npm | Pip":
    if ecosystem == "npm":
        from toolkeep.mcp_client.packages.npm import Npm

        return Npm()
    from toolkeep.mcp_client.packages.pypi import Pip

    return Pip()


def _ask_about_age(found: Resolution, options: InstallOptions) -> None:
    days, young = f"{MIN_RELEASE_AGE_DAYS} days", found.young
    if not found.tells_age and not options.as_json:
        warn(f"the registry does not say when versions were published: some may be younger than {days}")
    if found.passed_over and not options.as_json:
        warn(f"{found.passed_over} is younger than {days} and is passed over; --allow-new takes it")
    if not young:
        return
    if not options.as_json:
        warn(f"younger than {days}, and no older version will do: {', '.join(young)}")
    try:
        check_agreed("Install them all the same?", as_json=options.as_json)
    except NotAccepted:
        reason = f"{', '.join(young)} is younger than {days}, or needs a version that is"
        hint = "name an older version, wait, or pass --allow-new"
        raise ImportRefused("its packages", reason, hint=hint) from None


def _with_scripts(pinned: PinnedPackages, allowed: Sequence[str]) -> PinnedPackages:
    """The packages with the install scripts that are allowed; says which others stay out."""
    named = {package.name.partition(":")[2] for package in pinned.locked()}
    if strange := [name for name in allowed if name not in named or pinned.ecosystem != "npm"]:
        raise ImportRefused("--allow-scripts", f"'{strange[0]}' is no npm package of this server")
    skipped = sorted(
        place.rpartition("node_modules/")[2]
        for place, entry in pinned.tree.items()
        if entry.get("hasInstallScript") and place.rpartition("node_modules/")[2] not in allowed
    )
    for name in skipped:
        warn(f"the install script of '{name}' is not run; --allow-scripts {name} would run it, confined")
    return msgspec.structs.replace(pinned, scripts=tuple(sorted(allowed)))


def _headline(command: PackageCommand, pinned: PinnedPackages) -> str:
    """The version of the package that was asked for."""
    wanted = command.packages[0][0]
    if pinned.ecosystem == "pypi":
        from toolkeep.mcp_client.packages.pypi import canonical_name

        wanted = canonical_name(wanted)
    place = wanted if wanted in pinned.tree else f"node_modules/{wanted}"
    return f"{wanted} {pinned.tree[place]['version']}"
