"""`toolkeep demo`: a keep with example tools and calls, served with its page until Ctrl-C.

Everything is in one temporary folder: project, state, home. Nothing of this user is read or changed, and
nothing is left behind.
"""

import contextlib
import shlex
import socket
from typing import TYPE_CHECKING, Final

import click

from toolkeep.cli.isolation_notice import warn_if_unconfined
from toolkeep.cli.listen_options import address as address_of
from toolkeep.cli.listen_options import listen
from toolkeep.cli.options import common, print_json, say, say_done
from toolkeep.cli.served_page import listed, open_in_browser, program_name, say_link, sign_in_link

if TYPE_CHECKING:
    from toolkeep.cli.demo_keep import DemoFolder

HOST: Final = "127.0.0.1"
PORT: Final = 8765


@click.command("demo")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help=f"The port.  [default: {PORT}, or a free one]",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in your browser.")
@common
def command(port: int | None, *, opens: bool, as_json: bool) -> None:
    """Serve a demo keep, with calls that wait for your approval on its page.

    An example agent makes a call that runs, one that is refused, and calls that need approval. Everything is
    in a temporary folder, which is removed when you end the demo with Ctrl-C.
    """
    from toolkeep.cli.demo_keep import demo_folder, make_calls, open_demo_keep
    from toolkeep.keep.open import open_tokens
    from toolkeep.limits import ServerLimits
    from toolkeep.server.app_factory import make_app
    from toolkeep.server.run_server import serve
    from toolkeep.storage.sqlite.sign_in_codes import FileSignInCodes

    limits = ServerLimits(grace_s=1)
    with _listen(port) as sock, demo_folder() as place, open_demo_keep(place.project) as keep:
        address = f"http://{address_of(HOST, sock.getsockname()[1])}"
        codes = FileSignInCodes(place.state)

        def tell(text: str) -> None:
            if not as_json:
                say(f"  {text}", err=True)

        def begun() -> None:
            make_calls(keep, tell, is_confined=not warn_if_unconfined())
            link = sign_in_link(address, codes)
            if as_json:
                print_json({"link": link, "project": str(place.project), "state": str(place.state)})
            else:
                _say_begun(link, place)
            if opens:
                open_in_browser(sign_in_link(address, codes), place.state, place.environment)

        with contextlib.closing(open_tokens(place.project)) as tokens, listed(place.state, address):
            serve(make_app(keep, tokens, limits=limits, codes=codes), sock, limits, begun)
    if not as_json:
        say_done("the demo has ended; its folder is removed", err=True)


def _listen(port: int | None) -> socket.socket:
    """The named port; without one the usual port, or a free one if that is taken."""
    if port is not None:
        return listen(HOST, port, option="--port")
    try:
        return listen(HOST, PORT, option="--port")
    except OSError:
        return listen(HOST, 0, option="--port")


def _say_begun(link: str, place: "DemoFolder") -> None:
    say_link(link)
    state = "=".join(("TOOLKEEP_HOME", shlex.quote(str(place.state))))
    say("  Another link, from another terminal:", err=True)
    say(f"  {state} {program_name()} token link --project {shlex.quote(str(place.project))}", err=True)
    say("  End the demo with Ctrl-C.", err=True)
