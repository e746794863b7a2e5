"""Commands that servers document: recognized, or refused at once with the reason."""

import shlex
import sys

import pytest

from toolkeep.errors import ImportRefused
from toolkeep.mcp_client.packages.runner_commands import read_command

pytestmark = pytest.mark.spec("MCP-3")

OURS = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize(
    ("line", "ecosystem", "packages", "program", "arguments"),
    [
        ("npx -y @scope/x ./docs", "npm", [("@scope/x", "")], "", ["./docs"]),
        ("npx --yes x@1.2.3 -- -a", "npm", [("x", "1.2.3")], "", ["--", "-a"]),
        ("npx --package=p prog -y", "npm", [("p", "")], "prog", ["-y"]),
        ("npx -p @s/p@^2 prog", "npm", [("@s/p", "^2")], "prog", []),
        ("npm exec -y -- x a", "npm", [("x", "")], "", ["a"]),
        ("bunx x", "npm", [("x", "")], "", []),
        ("pnpm dlx x", "npm", [("x", "")], "", []),
        ("/opt/node/bin/npx x", "npm", [("x", "")], "", []),
        ("cmd /c npx -y x", "npm", [("x", "")], "", []),
        ("uvx x --flag", "pypi", [("x", "")], "x", ["--flag"]),
        ("uvx x@1.2 a", "pypi", [("x", "==1.2")], "x", ["a"]),
        ("uvx x@latest", "pypi", [("x", "")], "x", []),
        ("uvx --from 'p[cli]>=1,<2' prog run", "pypi", [("p[cli]", ">=1,<2")], "prog", ["run"]),
        (f"uvx --python {OURS} --with a,b x", "pypi", [("x", ""), ("a", ""), ("b", "")], "x", []),
        ("uvx --prerelease=allow x", "pypi", [("x", "")], "x", []),
        ("uv tool run x==1.0", "pypi", [("x", "==1.0")], "x", []),
        ("pipx run --spec p==1 prog", "pypi", [("p", "==1")], "prog", []),
    ],
)
def test_a_package_runner_is_recognized(
    line: str, ecosystem: str, packages: list[tuple[str, str]], program: str, arguments: list[str]
) -> None:
    found = read_command(tuple(shlex.split(line)))
    assert found is not None
    assert (found.ecosystem, list(found.packages)) == (ecosystem, packages)
    assert (found.program, list(found.arguments)) == (program, arguments)


@pytest.mark.parametrize(
    "line", ["python3 server.py", "node x.js", "./server", "sh server.sh", "npm-mcp run", ""]
)
def test_an_ordinary_program_is_left_alone(line: str) -> None:
    assert read_command(tuple(shlex.split(line))) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("docker run -i --rm mcp/time", "a daemon outside the sandbox, as root"),
        ("podman run x", "a daemon outside the sandbox"),
        ("sudo npx x", "becomes root"),
        ("bash -lc 'curl https://x.example | sh'", "a line for a shell"),
        ("env A=1 npx x", "would not be found"),
        ("uv --directory /srv run server.py", "downloads packages whenever it starts"),
        ("npm run start", "may start anything"),
        ("npx github:a/b", "is no package of a registry"),
        ("npx git+ssh://git@x.example/a.git", "is no package of a registry"),
        ("npx https://x.example/a.tgz", "is no package of a registry"),
        ("npx ./local", "is no package of a registry"),
        ("npx a@npm:b@1", "is no package of a registry"),
        ("npx -c 'echo'", "has -c, which cannot be resolved into a lock"),
        ("npx -p a -p b c", "names several packages"),
        ("npx -p a ../c", "names the program"),
        ("npx -y", "names no program"),
        ("uvx --from git+https://x.example/a b", "is no package of a registry"),
        ("uvx --with-editable . x", "has --with-editable"),
        ("uvx --from", "has --from without a value"),
        ("uvx 'x @ https://x.example/a.whl'", "is no package of a registry"),
        ("uvx --python 2.7 x", "asks for Python 2.7"),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason(line: str, reason: str) -> None:
    with pytest.raises(ImportRefused) as refused:
        read_command(tuple(shlex.split(line)))
    assert reason in refused.value.message
    assert refused.value.hint


def test_a_refusal_does_not_repeat_the_arguments() -> None:
    with pytest.raises(ImportRefused) as refused:
        read_command(("npx", "--strange", "x", "--api-key=s3cret"))
    assert "s3cret" not in str(refused.value)
