"""The definitions of the built-in tools: what a model reads, what each touches, and its function (TLS-1).

The functions are not imported here: they run in a sandbox.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Tier
from toolkeep.registry.coerce import Offer
from toolkeep.registry.register import tools_of_tier
from toolkeep.registry.tool_provider import CORE
from toolkeep.tools.agent_hello_world import HelloWorldTool

GIT: Final = "/usr/bin/git"


class BuiltIn(NamedTuple):
    """The runner of a built-in tool: a function of toolkeep, by name."""

    target: str
    fixed: tuple[tuple[str, str], ...] = ()
    """Further arguments from the configuration."""
    writes: str = ""
    """The folder below the named one that it really writes."""
    programs: tuple[str, ...] = ()
    """Programs that it starts beside those in its definition; missing ones are left out."""
    takes_host_secrets: bool = False
    """Whether it receives the secrets named after the hosts of its call."""
    replaces_file: bool = False
    """Whether it writes the one file that its call names, so that what it replaces is kept."""
    kind: str = "built_in"


def _path(what: str, *touches: str) -> dict[str, Any]:
    """A path, and how it is touched."""
    marks = [{"x-touches": kind} for kind in touches]
    more = {"allOf": marks[1:]} if marks[1:] else {}
    return {"type": "string", "description": what, "minLength": 1, "maxLength": 4096, **marks[0], **more}


def _object(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_OUTSIDE_TEXT: Final = {"": "text"}
"""The label of a result that anybody may have written: of a file, a page, a repository, a program."""
_TARGET: Final = {"x-flow": "target"}
_CONTENT: Final = {"x-flow": "content"}
_OPTION: Final = {"x-flow": "option"}
"""Arguments without authority: a remembered approval does not bind them.

A path, a pattern that selects files, a command, an address, a header or a revision never is one, because it
decides what the call acts on.
"""

_ENCODING: Final = {
    "type": "string",
    "description": "The encoding of the file.",
    "enum": ["utf-8", "ascii", "utf-16", "utf-32"],
    "default": "utf-8",
    **_OPTION,
}
_TEXT_CHARS: Final = 1_000_000
"""More does not fit into the arguments of a call under the default limit."""

_LINE: Final = {"type": "integer", "minimum": 1}


def _defined(name: str, description: str, parameters: dict[str, Any], **fields: Any) -> ToolDefinition:
    shape = {"result_type": "string", "output_schema": {"type": "string"}, "flow": _OUTSIDE_TEXT}
    data = {"name": name, "description": description, "version": "1.0.0", "parameters": parameters}
    return ToolDefinition.from_dict({**data, **shape, **fields})


_STRICT: Final = {"required_isolation": "strict"}
_READS: Final[dict[str, Any]] = {
    "category": "file_system",
    "danger": "safe",
    "side_effects": ["FsRead"],
    "capabilities": ["fs.read"],
    "determinism": "Deterministic",  # as long as the files are the same
    "constraints": _STRICT,
    "required_permissions": ["tool.filesystem.read"],
}
_WRITES: Final[dict[str, Any]] = {
    "category": "file_system",
    "danger": "medium",
    "determinism": "Maybe",  # they say whether there was a file before
    "flow": {"": {"system": "text"}},  # our own words about what was written
    "constraints": _STRICT,
    "required_permissions": ["tool.filesystem.write"],
}

READ_FILE: Final = _defined(
    "read_file",
    "Read the text of a file, or of some of its lines. Long files are returned in parts; the last line says "
    "how to continue.",
    _object(
        ["path"],
        path=_path("The file, absolute or relative.", "fs.read"),
        encoding=_ENCODING,
        start_line={**_LINE, "description": "The first line to read, from 1.", "default": 1, **_OPTION},
        end_line={**_LINE, "description": "The last line to read.", **_OPTION},
        max_lines={**_LINE, "description": "How many lines to read; not together with end_line.", **_OPTION},
    ),
    aliases=["file_read"],
    **_READS,
)

WRITE_FILE: Final = _defined(
    "write_file",
    "Write a text file: create it, replace it, or append to it. A file is replaced completely or not at all.",
    _object(
        ["path", "content"],
        path=_path("The file, absolute or relative.", "fs.write"),
        content={"type": "string", "description": "The text.", "maxLength": _TEXT_CHARS, **_CONTENT},
        mode={
            "type": "string",
            "description": "overwrite replaces the file, append adds at its end.",
            "enum": ["overwrite", "append"],
            "default": "overwrite",
            **_TARGET,
        },
        create_directories={
            "type": "boolean",
            "description": "Create missing parent folders.",
            "default": True,
            **_OPTION,
        },
        encoding=_ENCODING,
    ),
    aliases=["file_write"],
    side_effects=["FsWrite"],
    capabilities=["fs.write"],
    **_WRITES,
)

LIST_DIRECTORY: Final = _defined(
    "list_directory",
    "List the entries of a folder, one per line: folders end with a slash, files have their size.",
    _object(
        ["path"],
        path=_path("The folder, absolute or relative.", "fs.read"),
        pattern={
            "type": "string",
            "description": "Which entries to list, such as *.py or **/test_*.py.",
            "minLength": 1,
            "maxLength": 500,
            "default": "*",
        },
        recursive={"type": "boolean", "description": "Also list subfolders.", "default": False},
        include_hidden={
            "type": "boolean",
            "description": "Also list entries whose name begins with a dot.",
            "default": False,
        },
        max_depth={
            "type": "integer",
            "description": "Depth of a recursive list.",
            "minimum": 1,
            "maximum": 10,
            "default": 5,
            **_OPTION,
        },
    ),
    aliases=["directory_list"],
    **_READS,
)

GREP_SEARCH: Final = _defined(
    "grep_search",
    "Search files for lines that match a regular expression (RE2 syntax). Skips what .gitignore names, "
    "hidden files and binary files.",
    _object(
        ["pattern", "path"],
        pattern={
            "type": "string",
            "description": "The regular expression.",
            "minLength": 1,
            "maxLength": 1000,
        },
        path=_path("The file or folder to search.", "fs.read"),
        case_insensitive={
            "type": "boolean",
            "description": "Whether to ignore case.",
            "default": False,
            **_OPTION,
        },
        file_pattern={
            "type": "string",
            "description": "Which files to search, such as *.py or src/**/*.{ts,tsx}.",
            "minLength": 1,
            "maxLength": 500,
        },
    ),
    **_READS,
)

EDIT_CODE: Final = _defined(
    "edit_code",
    "Replace a text in a file. The old text must occur exactly once, including whitespace.",
    _object(
        ["path", "old_content", "new_content"],
        path=_path("The file to edit, absolute or relative.", "fs.write", "fs.read"),
        old_content={
            "type": "string",
            "description": "The exact text to replace.",
            "minLength": 1,
            "maxLength": _TEXT_CHARS,
            **_CONTENT,
        },
        new_content={
            "type": "string",
            "description": "The replacement.",
            "maxLength": _TEXT_CHARS,
            **_CONTENT,
        },
    ),
    side_effects=["FsRead", "FsWrite"],
    capabilities=["fs.read", "fs.write"],
    **_WRITES,
)

RESTORE_FILE: Final = _defined(
    "restore_file",
    "Take back a write to a file: give it its earlier content, or remove it if there was no file. Fails if "
    "the file has changed since. `toolkeep undo` calls it.",
    _object(
        ["path", "expected_sha256"],
        path=_path("The file, absolute or relative.", "fs.write", "fs.read"),
        expected_sha256={
            "type": "string",
            "description": "The SHA-256 of the content that it must have now, in hex.",
            "pattern": "^[0-9a-f]{64}$",
            "maxLength": 64,
            **_CONTENT,
        },
        content={
            "type": "string",
            "description": "Its earlier text; without it and content_base64, the file is removed.",
            "maxLength": _TEXT_CHARS,
            **_CONTENT,
        },
        content_base64={
            "type": "string",
            "description": "Its earlier content, in base64, if that was not UTF-8 text.",
            "maxLength": _TEXT_CHARS,
            **_CONTENT,
        },
    ),
    side_effects=["FsRead", "FsWrite"],
    capabilities=["fs.read", "fs.write"],
    **_WRITES,
)

RUN_COMMAND: Final = _defined(
    "run_command",
    "Run a program with arguments in a sandbox, and return its output and exit status. There is no shell: no "
    "pipes, redirections, variables or wildcards.",
    _object(
        ["command"],
        command={
            "type": "string",
            "description": "The program and its arguments, quoted as for a shell.",
            "minLength": 1,
            "maxLength": 8192,
            "x-touches": "process.spawn",
        },
        working_directory={**_path("The folder to run it in.", "fs.read"), "default": "."},
        timeout_seconds={
            "type": "integer",
            "description": "Time limit in seconds.",
            "minimum": 1,
            "maximum": 300,
            "default": 60,
            **_OPTION,
        },
        capture_stderr={
            "type": "boolean",
            "description": "Also return standard error.",
            "default": True,
            **_OPTION,
        },
    ),
    aliases=["command_execute"],
    category="code_execution",
    danger="high",
    determinism="NonDeterministic",
    side_effects=["FsRead", "FsWrite", "ProcessSpawn"],
    capabilities=["fs.read", "fs.write", "process.spawn"],
    constraints={**_STRICT, "max_execution_time": 310},
    # Runtimes with a JIT compiler, such as node, do not start in the default of 512 MiB of address space.
    resource_bounds={"max_memory": 1 << 30},
    required_permissions=["tool.system.run"],
)

HTTP_FETCH: Final = _defined(
    "http_fetch",
    "Fetch a URL and return its text; HTML is returned without markup, with the URLs of links in brackets.",
    _object(
        ["url"],
        url={
            "type": "string",
            "description": "The http or https URL.",
            "minLength": 1,
            "maxLength": 4096,
            "pattern": "^https?://.+$",
            "x-touches": "net.read",
        },
        headers={
            "type": "object",
            "description": "Headers to send.",
            "additionalProperties": {"type": "string", "maxLength": 4096},
            "maxProperties": 20,
            "x-flow": "record",
        },
    ),
    aliases=["web_fetch"],
    category="network",
    danger="low",
    determinism="Maybe",
    side_effects=["NetRead"],
    capabilities=["net.read"],
    constraints=_STRICT,
    required_permissions=["tool.network.fetch"],
)

_GIT: Final[dict[str, Any]] = {
    "category": "version_control",
    "determinism": "NonDeterministic",
    "constraints": _STRICT,
}
_READS_GIT: Final[dict[str, Any]] = {
    **_GIT,
    "danger": "safe",
    "side_effects": ["FsRead"],
    "capabilities": ["fs.read"],
    "required_permissions": ["tool.vcs.read"],
}
_REPOSITORY: Final = {**_path("The top folder of the repository.", "fs.read"), "default": "."}
_REVISION: Final = {
    "type": "string",
    "description": "A branch, a tag, a hash, or a range of them.",
    "minLength": 1,
    "maxLength": 200,
}
_FILE: Final = {
    "type": "string",
    "description": "Only this file or folder, relative to the top of the repository.",
    "minLength": 1,
    "maxLength": 4096,
}

GIT_STATUS: Final = _defined(
    "git_status",
    "Show the branch of a git repository, and which files have changed.",
    _object([], path=_REPOSITORY),
    **_READS_GIT,
)

GIT_DIFF: Final = _defined(
    "git_diff",
    "Show what changed in a git repository, as a unified diff.",
    _object(
        [],
        path=_REPOSITORY,
        staged={"type": "boolean", "description": "Show the staged changes.", "default": False},
        revision=_REVISION,
        file=_FILE,
    ),
    **_READS_GIT,
)

GIT_LOG: Final = _defined(
    "git_log",
    "List the commits of a git repository, newest first, one per line.",
    _object(
        [],
        path=_REPOSITORY,
        max_count={
            "type": "integer",
            "description": "How many.",
            "minimum": 1,
            "maximum": 500,
            "default": 20,
            **_OPTION,
        },
        revision=_REVISION,
        file=_FILE,
    ),
    **_READS_GIT,
)

GIT_COMMIT: Final = _defined(
    "git_commit",
    "Commit files of a git repository, or the staged changes. Hooks do not run.",
    _object(
        ["message"],
        path={**_path("The top folder of the repository.", "fs.write", "fs.read"), "default": "."},
        message={
            "type": "string",
            "description": "The commit message.",
            "minLength": 1,
            "maxLength": 10000,
            **_CONTENT,
        },
        files={
            "type": "array",
            "description": "The files to commit, from the top of the repository; by default, those staged.",
            "items": {"type": "string", "minLength": 1, "maxLength": 4096},
            "maxItems": 1000,
            **_TARGET,
        },
    ),
    danger="medium",
    side_effects=["FsRead", "FsWrite", "ProcessSpawn"],
    capabilities=["fs.read", "fs.write", f"process.spawn:{GIT}"],
    required_permissions=["tool.vcs.write"],
    **_GIT,
)

GIT_PUSH: Final = _defined(
    "git_push",
    "Push a branch of a git repository to a server by https, or to a bare repository on this machine. "
    "Nothing is forced; hooks do not run.",
    _object(
        [],
        path=_REPOSITORY,
        url={
            "type": "string",
            "description": "The https URL to push to; either this or folder.",
            "minLength": 10,
            "maxLength": 2000,
            "pattern": "^https://[^@?#\\s]+$",
            "x-touches": {"kind": "net.write", "only": True},
        },
        folder={
            **_path("The bare repository to push to; either this or url.", "fs.write"),
            "x-touches": {"kind": "fs.write", "only": True},
        },
        branch={
            "type": "string",
            "description": "The branch to push; by default, the current one.",
            "minLength": 1,
            "maxLength": 200,
            **_TARGET,
        },
        to_branch={
            "type": "string",
            "description": "Its name at the destination; by default, the same.",
            "minLength": 1,
            "maxLength": 200,
            "x-flow": "destination",
        },
    ),
    category="version_control",
    danger="high",
    determinism="NonDeterministic",
    side_effects=["FsRead", "FsWrite", "NetWrite", "ProcessSpawn"],
    capabilities=["fs.read", "fs.write", "net.write", f"process.spawn:{GIT}"],
    constraints={**_STRICT, "max_execution_time": 120},
    resource_bounds={"max_network": {"max_requests": 50, "max_bytes": 512 << 20}},
    required_permissions=["tool.vcs.write"],
)

_GIT_CORE: Final = ("/usr/lib/git-core", "/usr/libexec/git-core")
"""Where distributions install the git programs that talk to a server."""

_PUSH: Final = BuiltIn(
    "toolkeep.tools.git_push:git_push",
    programs=tuple(f"{folder}/{name}" for folder in _GIT_CORE for name in ("git", "git-remote-https")),
    takes_host_secrets=True,
)

BUILT_IN_TOOLS: Final = (
    (READ_FILE, BuiltIn("toolkeep.tools.read_file:read_file")),
    (WRITE_FILE, BuiltIn("toolkeep.tools.write_file:write_file", replaces_file=True)),
    (LIST_DIRECTORY, BuiltIn("toolkeep.tools.list_directory:list_directory")),
    (GREP_SEARCH, BuiltIn("toolkeep.tools.grep:grep_search")),
    (EDIT_CODE, BuiltIn("toolkeep.tools.write_file:edit_code", replaces_file=True)),
    (RESTORE_FILE, BuiltIn("toolkeep.tools.write_file:restore_file", replaces_file=True)),
    (RUN_COMMAND, BuiltIn("toolkeep.tools.run_command:run_command")),
    (HTTP_FETCH, BuiltIn("toolkeep.tools.http_fetch:http_fetch")),
    # No spawn grant is needed to read: git is confined to the named repository, and starts no other program.
    (GIT_STATUS, BuiltIn("toolkeep.tools.git:git_status", programs=(GIT,))),
    (GIT_DIFF, BuiltIn("toolkeep.tools.git:git_diff", programs=(GIT,))),
    (GIT_LOG, BuiltIn("toolkeep.tools.git:git_log", programs=(GIT,))),
    (GIT_COMMIT, BuiltIn("toolkeep.tools.git:git_commit", writes=".git")),
    (GIT_PUSH, _PUSH),
)
"""Each tool and its runner."""


def _host_of(url: str) -> str:
    from toolkeep.network.hosts import read_url

    return read_url(url).scope


def web_search(url: str) -> tuple[ToolDefinition, BuiltIn]:
    """The tool that asks a search engine; the configuration names it."""
    scope = f"net.read:{_host_of(url)}" if url else "net.read"
    definition = _defined(
        "web_search",
        "Search the web, and return the title, URL and an excerpt of each result.",
        _object(
            ["query"],
            query={
                "type": "string",
                "description": "What to search for.",
                "minLength": 1,
                "maxLength": 1000,
            },
            max_results={
                "type": "integer",
                "description": "Number of results.",
                "minimum": 1,
                "maximum": 50,
                "default": 10,
                **_OPTION,
            },
        ),
        category="network",
        danger="safe",
        determinism="Maybe",
        side_effects=["NetRead"],
        capabilities=[scope],
        constraints=_STRICT,
        required_permissions=["tool.network.fetch"],
    )
    return definition, BuiltIn("toolkeep.tools.http_fetch:web_search", fixed=(("endpoint", url),))


def built_in(search_url: str = "") -> list[Any]:
    """Every built-in tool; `search_url` is the search engine of `web_search`."""
    declared = (*BUILT_IN_TOOLS, web_search(search_url))
    return [HelloWorldTool, *(Offer(tool=tool, runner=runner) for tool, runner in declared)]


class CoreToolsProvider:
    """Offers the built-in tools of a tier."""

    name = CORE
    priority = 0

    def __init__(self, tier: Tier, search_url: str = "") -> None:
        self._tier = tier
        self._search_url = search_url

    def get_tool_definitions(self) -> Iterable[Any]:
        """The tools."""
        return tools_of_tier(built_in(self._search_url), self._tier)
