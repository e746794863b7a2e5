"""Push a branch by https, and report the result in our own words.

Credentials reach git in its environment, bound to the server, and are removed from everything that comes
back. All that the server says is hostile, and quoted as such. It cannot redirect git.
"""

import base64
import re
from typing import Final

from toolkeep.definitions.tool_context import ToolContext, ToolFailed
from toolkeep.network.hosts import read_url
from toolkeep.text.display import HIDDEN, shorten, visible_lines
from toolkeep.tools.git_borrowed_objects import ObjectAlternates

_SAID_CHARS: Final = 600
"""The server's message goes to the model; it is hostile, and a long one would bury ours."""
_QUOTED_LINES: Final = 8
"""The same for lines."""
_USER: Final = "git"
"""The user name for a bare token: servers that accept tokens ignore it."""

_PLAIN: Final = ("--porcelain", "--no-verify", "--no-signed", "--no-progress", "--recurse-submodules=no")


def push_to_server(lender: ObjectAlternates, url: str, tip: str, target: str, context: ToolContext) -> str:
    """Push a commit to a branch and report the result; `ToolFailed` says why it failed."""
    secret = context.secrets.get(str(read_url(url)), "")
    pushed = f"{tip}:refs/heads/{target}"
    done = lender.run("push", *_PLAIN, "--", url, pushed, settings=_settings(url, secret), protocols="https")
    said = _without(done.text(), secret)
    if done.status == 0 and (told := _told(said, tip, target, url)):
        return told
    raise ToolFailed(_why_not(f"{said}\n{done.ending}", target, url, has_secret=bool(secret)))


def _settings(url: str, secret: str) -> dict[str, str]:
    """Settings for one server: certificate verified, no redirects, credentials for this origin only.

    With redirects allowed, the server could send git, and its credentials, to another host.
    """
    found = {"http.sslVerify": "true", "http.followRedirects": "false", "http.emptyAuth": "false"}
    if secret:
        if not secret.isprintable():
            raise ToolFailed("The secret of the server is not a single line of plain text; tell the operator")
        origin = "/".join(url.split("/")[:3])
        found[f"http.{origin}/.extraHeader"] = f"Authorization: Basic {_credential(secret)}"
    return found


def _credential(secret: str) -> str:
    pair = secret if ":" in secret else f"{_USER}:{secret}"
    return base64.b64encode(pair.encode()).decode()


def _without(text: str, secret: str) -> str:
    """The server's output without the credentials: it could echo them to the model."""
    if secret:
        for told in (_credential(secret), secret, secret.partition(":")[2]):
            text = text.replace(told, HIDDEN) if told else text
    return text


def _told(said: str, tip: str, target: str, url: str) -> str:
    """What git reports about the branch, in our own words; empty if it reports nothing."""
    lines = said.splitlines()
    mark = f":refs/heads/{target}\t"
    line = next((line for line in lines if line[1:2] == "\t" and mark in line), "")
    shown = {
        "*": f"Pushed {tip[:12]} to the new branch '{target}' of {url}",
        " ": f"Pushed {tip[:12]} to '{target}' of {url}",
        "=": f"'{target}' of {url} is at {tip[:12]} already; nothing was pushed",
    }.get(line[:1], "")
    remarks = (text.removeprefix("remote:").strip() for text in lines if text.startswith("remote:"))
    remark = shorten(visible_lines("\n".join(filter(None, remarks))), _SAID_CHARS)
    return f"{shown}\n[the server says: {remark}]" if shown and remark else shown


_BEHIND: Final = "the branch there has commits that this one does not have; fetch and merge them first"
_GUARDED: Final = "the server protects this branch; push to another one (to_branch) and open a merge request"
_REASONS: Final = (
    (r"\((fetch first|non-fast-forward|stale info|needs force)\)", f"{_BEHIND}, nothing is forced"),
    (r"\[remote rejected\].*(protected|hook declined|not allowed|denied|prohibited)", _GUARDED),
    (r"\[remote rejected\]|\[remote failure\]|\[rejected\]", "the server refused the branch"),
    (r"could not read Username|Authentication failed|returned error: 401", "{auth}"),
    (r"returned error: 403|Permission .*denied", "the server denied access"),
    (r"from proxy after CONNECT|Could not resolve|Failed to connect", "the server cannot be reached here"),
    (r"returned error: 30\d|redirect", "the server redirects to another address; use that one"),
    (r"certificate|SSL|TLS", "the server showed no certificate that is trusted here"),
    (r"not found|returned error: 404", "there is no such repository, or you may not see it"),
    (r"unpack|pack-objects|unable to read|bad object", "objects of the branch are missing or broken"),
    (r"did not end in time", "it took too long"),
)


def _why_not(said: str, target: str, url: str, *, has_secret: bool) -> str:
    host = str(read_url(url))
    refused = f"the server did not take the secret '{host}' of git_push; tell the operator"
    wanted = f"the server wants credentials; the operator gives them as the secret '{host}' of git_push"
    found = next((why for pattern, why in _REASONS if re.search(pattern, said)), "git gave up")
    why = found.format(auth=refused if has_secret else wanted)
    words = [line for line in said.splitlines() if line.strip() and not line.startswith(("To ", "Done"))]
    quoted = shorten(visible_lines("\n".join(words[-_QUOTED_LINES:])), _SAID_CHARS)
    return f"'{target}' was not pushed to {url}: {why}\n{quoted}".rstrip()
