"""The page of a running server: sign-in links, the browser, and the command as this user can type it."""

import contextlib
import html
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolkeep.cli.options import say, warn

if TYPE_CHECKING:
    from toolkeep.storage.sqlite.sign_in_codes import SignInCodes

_REDIRECT: Final = "open-page.html"
_UV_CACHES: Final = ("archive-v", "builds-v", "environments-v")
"""Folders of uv's cache: `uvx` puts one on the PATH of the program that it runs, and of nothing else."""


def sign_in_link(address: str, codes: "SignInCodes") -> str:
    """A link that signs in once, within five minutes.

    The code is in the fragment: browsers send it neither to servers nor in `Referer`, so that it is in no
    access log.
    """
    return f"{address.rstrip('/')}/ui/sign-in#{codes.make()}"


@contextlib.contextmanager
def listed(folder: Path | None, address: str) -> Iterator[None]:
    """While a server serves its page: `toolkeep token link` finds it by its state folder."""
    if folder is None:
        yield
        return
    from toolkeep.storage.running_servers import announced

    with announced(folder, address):
        try:
            yield
        finally:
            (folder / _REDIRECT).unlink(missing_ok=True)


def open_in_browser(link: str, folder: Path, environment: Mapping[str, str] = os.environ) -> bool:
    """Open a sign-in link in the user's browser; False, with a warning, if there is none.

    Browsers get the address as an argument, which every user of this machine can read while they start, and
    could use before them. So they are given a file of this user, which leads on to the link.
    """
    if not _has_browser(environment):
        warn("no browser can be opened here: there is no display; open the link yourself")
        return False
    import webbrowser

    from toolkeep.storage.atomic_files import write_whole
    from toolkeep.storage.state_folder import make_private

    make_private(folder)
    page = folder / _REDIRECT
    target = html.escape(link)
    leads_on = f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">toolkeep</a>'
    text = f"<!doctype html>{leads_on}"
    write_whole(page, text.encode(), mode=0o600, is_soon_replaced=True)
    if webbrowser.open(page.as_uri()):
        return True
    warn("no browser could be opened; open the link yourself")
    return False


def _has_browser(environment: Mapping[str, str]) -> bool:
    # Without a display `webbrowser` falls back to text browsers, which would take over this terminal.
    names = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    return not sys.platform.startswith("linux") or any(map(environment.get, names))


def program_name() -> str:
    """The command to type for this program: `toolkeep`, or as it was typed if it is not on the PATH."""
    called = sys.argv[0]
    if Path(called).name != "toolkeep":
        return shlex.join([sys.executable, "-m", "toolkeep"])
    is_cached = any(part.startswith(_UV_CACHES) for part in Path(called).parts)
    is_found = not is_cached and Path(called).is_absolute() and shutil.which("toolkeep") == called
    return "toolkeep" if is_found else shlex.quote(called)


def say_link(link: str) -> None:
    """Print a sign-in link alone on stdout, and what it is on stderr."""
    say("  Open this link to sign in to the page. It works once, for five minutes:", err=True)
    say(link)
