"""Read configuration files into `Settings` (REG-5). The project's file overrides the user's.

An unreadable file or an unknown key stops the start, with its position: a misspelled restriction must not be
ignored. A project's file that would run, grant or loosen something takes effect only after a person has
accepted exactly its content; until then its tools are listed and quarantined, and nothing else of it applies.
"""

import dataclasses
import hashlib
import json
import os
import stat
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolkeep.calls import Violation
from toolkeep.config.accepted_code import changed_files
from toolkeep.config.consent import LEVELS, LIMIT_FIELDS, ConsentItems, at
from toolkeep.config.env_interpolation import TOOL_LISTS, Substitution
from toolkeep.config.fleet_settings import read_fleet, read_worker
from toolkeep.config.identity_settings import read_identity, wrong_with_issuer
from toolkeep.config.paths import ConfigPaths
from toolkeep.config.project_code import TOOLS, hash_code, named_files
from toolkeep.config.schema import FILE_SCHEMA
from toolkeep.config.settings import (
    DEFAULT_SETTINGS,
    AgentGrant,
    ConfigFile,
    ConfiguredTool,
    ConfiguredToolsFile,
    ConfiguredUpstream,
    DatabaseSettings,
    EventWebhook,
    SecretSource,
    Settings,
)
from toolkeep.config.upstream_rules import document_of, wrong_with_upstream
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.serialization import OTHER_SPELLINGS
from toolkeep.definitions.vocabulary import Tier
from toolkeep.errors import Code, ConfigurationInvalid, FileUnreadable
from toolkeep.flow.flow_settings import FlowSettings, read_flow
from toolkeep.host.files import read_ordinary
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.json_values.pointers import child, escaped, steps_of
from toolkeep.json_values.yaml import Document, Place, read_yaml
from toolkeep.limits import (
    CONFIG_FILE_BYTES,
    CUSTOM_TOOLS,
    DEFAULT_LIMITS,
    DEFINITION_FILE_BYTES,
    ERRORS,
)
from toolkeep.policy.policy_settings import DEFAULT_GRANT, KNOWN_PERMISSIONS, Grant
from toolkeep.text.display import echo_name, type_name, visible
from toolkeep.text.nearest import nearest_name
from toolkeep.validation.close_objects import close_objects
from toolkeep.validation.dialect import Dialect
from toolkeep.validation.references import resolve_references
from toolkeep.validation.schema_engine import compile_schema

if TYPE_CHECKING:
    from toolkeep.config.policy_files import PolicyFile
    from toolkeep.validation.compile import CompiledSchema


IsAccepted = Callable[[str, str], bool]
"""Whether a person accepted the file at a path with a seal."""
AcceptedBefore = Callable[[str], str | None]
"""The content of the file at a path that a person accepted last."""
Parse = Callable[[bytes, str], Document]
"""Parses the content of the file at a path."""


def read_settings(
    files: ConfigPaths,
    environment: Mapping[str, str],
    is_accepted: IsAccepted,
    *,
    accepted_before: AcceptedBefore = lambda _: None,
    takes_proposals: bool = False,
    parse: Parse = read_yaml,
) -> Settings:
    """The combined settings of the user's and the project's files.

    With `takes_proposals`, a project's file is read as if it were accepted, for review: its variables are not
    resolved, and `ConfigFile.counts` still says whether it may be used.
    """
    settings = DEFAULT_SETTINGS
    for path in files.user:
        if (raw := _bytes(path, is_users=True)) is not None:
            document = parse(raw, str(path))
            settings = _File(path, document, settings, environment).settings(lambda *_: True)
    if files.project is not None and (raw := _bytes(files.project, is_users=False)) is not None:
        document = parse(raw, str(files.project))
        file = _File(files.project, document, settings, environment, is_project=True)
        settings = file.settings(is_accepted, accepted_before, takes_proposals=takes_proposals)
    return settings


def _bytes(path: Path, *, is_users: bool) -> bytes | None:
    if is_users:
        return read_ordinary(path, CONFIG_FILE_BYTES, partial(_check_owner, path))
    return read_ordinary(path, CONFIG_FILE_BYTES)


def _check_owner(path: Path, status: os.stat_result) -> None:
    """The user's own file takes effect without review, so nobody else may be able to write it."""
    if status.st_uid not in (os.geteuid(), 0):
        raise FileUnreadable(str(path), "belongs to another user; change its owner to you")
    if status.st_mode & stat.S_IWOTH:
        raise FileUnreadable(str(path), f"is writable by everybody; run: chmod o-w {path}")


class _File:
    """One file over the settings without it."""

    def __init__(
        self,
        path: Path,
        document: Document,
        before: Settings,
        environment: Mapping[str, str],
        *,
        is_project: bool = False,
    ) -> None:
        self._path = str(path)
        self._before = before
        self._environment = environment
        self._is_project = is_project
        self._document = document

    def settings(
        self,
        is_accepted: IsAccepted,
        accepted_before: AcceptedBefore = lambda _: None,
        *,
        takes_proposals: bool = False,
    ) -> Settings:
        """The settings with this file applied."""
        unseen = Substitution(self._document, None)
        data = self._checked(unseen)
        policies = self._policy_files(data)
        hashes = self._document_hashes(data)
        file = self._judged(data, unseen.variables, policies, hashes, is_accepted, accepted_before)
        if file.counts and unseen.variables:
            data = self._checked(Substitution(self._document, self._environment))
        if file.counts or takes_proposals:
            said = data if file.counts else _to_look_at(data, unseen.unresolved)
            merged = _with_policies(self._merged(said, hashes), policies)
            tools = self._tools(said, file.code, held_back="")
            merged = replace(merged, tools_files=(*merged.tools_files, *self._tools_files(said, file.code)))
        else:
            why = f"{self._path} names policies that are not accepted yet; run `toolkeep accept`"
            merged = replace(self._before, policies_held_back=why) if policies else self._before
            tools = self._tools(data, file.code, held_back=file.why_held_back)
        return replace(merged, files=(*merged.files, file), tools=(*merged.tools, *tools))

    def _judged(
        self,
        data: dict[str, Any],
        variables: Sequence[tuple[str, str]],
        policies: "Sequence[PolicyFile]",
        hashes: Mapping[str, str],
        is_accepted: IsAccepted,
        accepted_before: AcceptedBefore,
    ) -> ConfigFile:
        """The effects of the file, and whether it is in force."""
        documents = {name: _shown_document(data, name, digest) for name, digest in hashes.items()}
        effects = ConsentItems(self._document, data, variables, self._before, policies, documents).all()
        # The project's real folder, but no symlink below it: a link could lead to a file that was accepted
        # elsewhere.
        path = Path(self._path)
        real_path = str(Path(os.path.realpath(path.parent.parent)) / path.parent.name / path.name)
        code = self._code() if self._is_project else {}
        said = sorted([effect.kind, effect.what] for effect in effects)  # the order of keys does not matter
        # The effects too: under other user settings the same file may grant more than the person saw. The
        # code too: the file only names it, and another script under the same name is another tool.
        sealed = {"file": self._document.data, "effects": said, "code": code}
        content = canonical_bytes(sealed)
        seal = hashlib.sha256(content).hexdigest()
        counts = not self._is_project or not effects or is_accepted(real_path, seal)
        text = None if counts else accepted_before(real_path)
        before = json.loads(text) if text else None
        return ConfigFile(
            path=real_path,
            seal=seal,
            is_project=self._is_project,
            effects=effects,
            counts=counts,
            code=code,
            content=content.decode() if self._is_project else "",
            changed_code=changed_files(before["code"], code) if before else (),
            is_changed=before is not None and {**sealed, "code": None} != {**before, "code": None},
        )

    def _code(self) -> dict[str, str]:
        """The project's code that the file names: accepting the file accepts that code too."""
        root = Path(self._path).parent.parent
        runs = [tool.get("run") for tool in self._written_tools()]
        upstreams = self._document.data.get("upstreams") if isinstance(self._document.data, dict) else None
        listed = upstreams.values() if isinstance(upstreams, dict) else ()
        started = (said for said in listed if isinstance(said, dict) and "command" in said)
        runs += [{TOOLS: name} for name in _tools_file_names(self._document.data)]
        runs += [{"process": {"argv": said["command"], "code": said.get("code")}} for said in started]
        return hash_code((path for run in runs for path in named_files(run, root)), root)

    def _written_tools(self) -> Iterator[dict[str, Any]]:
        for pointer in TOOL_LISTS:
            listed = at(self._document.data, pointer)
            yield from (tool for tool in listed or () if isinstance(tool, dict))

    def _policy_files(self, data: dict[str, Any]) -> "Sequence[PolicyFile]":
        if not data.get("policies"):
            return ()
        from toolkeep.config.policy_files import read_policy_files

        read = partial(_bytes, is_users=not self._is_project)
        return read_policy_files(Path(self._path).parent, data["policies"], read)

    def _document_hashes(self, data: dict[str, Any]) -> dict[str, str]:
        """The hash of each upstream's document: accepting the file accepts its content too."""
        folder = Path(self._path).parent
        upstreams = (data.get("upstreams") or {}).items()
        return {name: document_hash(folder / document_of(said)) for name, said in upstreams}

    def _checked(self, substitution: Substitution) -> dict[str, Any]:
        """The data; raises `ConfigurationInvalid` with every problem."""
        data = {} if substitution.resolved is None else _without_blanks(substitution.resolved)
        if not isinstance(data, dict):
            fix = "write `tool_registry:` and so on"
            place = self._document.place("")
            fault = f"{place}: the file must be an object, got {type_name(data)}; {fix}"
            raise ConfigurationInvalid([fault])
        faults = [*substitution.faults, *self._schema_faults(data, substitution.unresolved)]
        if not faults:
            faults += islice(self._rule_faults(data, substitution.unresolved), ERRORS)
        if faults:
            raise ConfigurationInvalid(faults)
        return data

    def _schema_faults(self, data: dict[str, Any], unresolved: set[str]) -> Iterator[str]:
        for violation in violations(_without_tools(data)):
            if violation.path in unresolved:
                continue
            place = self._document.key_place(_pointer_in(data, violation.path))
            yield f"{place}: {violation.message}{_fix(violation)}"

    def _rule_faults(self, data: dict[str, Any], unresolved: set[str]) -> Iterator[str]:
        for key in ("strict_mode", "cache_compiled_schemas"):
            if at(data, f"/tool_registry/{key}") is False:
                place = self._document.key_place(f"/tool_registry/{key}")
                yield f"{place}: {key} cannot be false; remove the line"
        for pointer in TOOL_LISTS:
            if len(at(data, pointer) or ()) > CUSTOM_TOOLS:
                yield f"{self._document.key_place(pointer)}: has more than {CUSTOM_TOOLS} tools; split it"
        webhook = at(data, "/audit/checkpoint_webhook")
        if webhook and "/audit/checkpoint_webhook" not in unresolved and (wrong := _wrong_with_url(webhook)):
            yield f"{self._document.place('/audit/checkpoint_webhook')}: {wrong}"
        if {"key", "key_file"} <= (data.get("database") or {}).keys():
            place = self._document.key_place("/database/key_file")
            yield f"{place}: there is a `key`, too; remove one of them"
        yield from self._witness_faults(data, unresolved)
        yield from self._identity_faults(data, unresolved)
        for agent, grant in (data.get("agents") or {}).items():
            from toolkeep.policy.effective_grant import check_scopes

            for index, held in enumerate(grant.get("capabilities") or ()):
                pointer = f"/agents/{escaped(agent)}/capabilities/{index}"
                try:
                    check_scopes([Capability.read(held)])
                except ValueError as error:
                    if pointer not in unresolved:
                        yield f"{self._document.place(pointer)}: {error}"
        yield from self._unknown_permissions(data, unresolved)
        yield from self._upstream_faults(data)
        yield from self._flow_faults(data, unresolved)

    def _witness_faults(self, data: dict[str, Any], unresolved: set[str]) -> Iterator[str]:
        for index, witness in enumerate(at(data, "/audit/witnesses") or ()):
            for key, wrong_with in (("url", _wrong_with_witness_url), ("key", _wrong_with_witness_key)):
                pointer = f"/audit/witnesses/{index}/{key}"
                if pointer not in unresolved and (wrong := wrong_with(witness[key])):
                    yield f"{self._document.place(pointer)}: {wrong}"
        for index, key in enumerate(at(data, "/audit/witness_for") or ()):
            pointer = f"/audit/witness_for/{index}"
            if pointer not in unresolved and (wrong := _wrong_with_log_key(key)):
                yield f"{self._document.place(pointer)}: {wrong}"

    def _identity_faults(self, data: dict[str, Any], unresolved: set[str]) -> Iterator[str]:
        names = set[str]()
        for index, issuer in enumerate(at(data, "/identity/issuers") or ()):
            pointer = f"/identity/issuers/{index}"
            for key, wrong in wrong_with_issuer(issuer, names):
                if f"{pointer}{key}" not in unresolved:
                    yield f"{self._document.place(f'{pointer}{key}')}: {wrong}"
            names.add(issuer["issuer"])

    def _flow_faults(self, data: dict[str, Any], unresolved: set[str]) -> Iterator[str]:
        if _has_unresolved_flow(unresolved):
            return
        try:
            _flow(self._before.flow, data.get("flow"))
        except ValueError as error:
            yield f"{self._document.key_place('/flow')}: {error}"

    def _upstream_faults(self, data: dict[str, Any]) -> Iterator[str]:
        for name, said in (data.get("upstreams") or {}).items():
            place = self._document.key_place(f"/upstreams/{escaped(name)}")
            if name in self._before.upstreams:
                yield f"{place}: '{name}' is already an upstream of yours; give this one another name"
            if wrong := wrong_with_upstream(said):
                yield f"{place}: upstream '{name}' {wrong}"

    def _unknown_permissions(self, data: dict[str, Any], unresolved: set[str]) -> Iterator[str]:
        known = {*KNOWN_PERMISSIONS, *self._before.permissions, *(data.get("permissions") or ())}
        for agent, grant in (data.get("agents") or {}).items():
            for index, held in enumerate(grant.get("permissions") or ()):
                pointer = f"/agents/{escaped(agent)}/permissions/{index}"
                if held not in known and pointer not in unresolved:
                    place, meant = self._document.place(pointer), nearest_name(held, sorted(known))
                    fix = f"did you mean '{meant}'?" if meant else "name it under `permissions` first"
                    yield f"{place}: there is no permission '{echo_name(held)}'; {fix}"

    def _merged(self, data: dict[str, Any], hashes: Mapping[str, str]) -> Settings:
        before = self._before
        registry = data.get("tool_registry") or {}
        level = registry.get("validation_failure_log_level")
        limits = {LIMIT_FIELDS[key]: int(registry[key]) for key in LIMIT_FIELDS if key in registry}
        definition = at(data, "/features/tools/definition")
        wait_s = at(data, "/approvals/wait")
        return replace(
            before,
            tier=Tier.read(data["tier"]) if data.get("tier") else before.tier,
            allows_definitions=before.allows_definitions if definition is None else definition,
            limits=dataclasses.replace(before.limits, **limits),
            include_actual_values=registry.get("include_actual_values", before.include_actual_values),
            validation_failure_level=LEVELS.get(level, before.validation_failure_level),
            providers=tuple(dict.fromkeys((*before.providers, *(registry.get("providers") or ())))),
            disabled={**before.disabled, **dict(self._disabled(data))},
            undo_days=float(before.undo_days if (days := at(data, "/undo/days")) is None else days),
            checkpoint_file=_absolute(at(data, "/audit/checkpoint_file")) or before.checkpoint_file,
            checkpoint_webhook=at(data, "/audit/checkpoint_webhook") or before.checkpoint_webhook,
            witnesses={
                **before.witnesses,
                **{witness["url"]: witness["key"] for witness in at(data, "/audit/witnesses") or ()},
            },
            witness_for=tuple(dict.fromkeys((*before.witness_for, *(at(data, "/audit/witness_for") or ())))),
            event_webhook=_event_webhook(at(data, "/events/webhook")) or before.event_webhook,
            database=_database(data.get("database")) or before.database,
            fleet=read_fleet(data.get("fleet"), _absolute) or before.fleet,
            worker=read_worker(data.get("worker"), _absolute) or before.worker,
            identity=read_identity(data.get("identity")) or before.identity,
            search_url=at(data, "/web_search/url") or before.search_url,
            unconfined=tuple(dict.fromkeys((*before.unconfined, *self._unconfined(data)))),
            is_paranoid=before.is_paranoid or at(data, "/approvals/paranoid") is True,
            watches_drift=before.watches_drift or data.get("drift") is True,
            flow=_flow(before.flow, data.get("flow")),
            approval_wait_s=before.approval_wait_s if wait_s is None else float(wait_s),
            permissions=tuple(dict.fromkeys((*before.permissions, *(data.get("permissions") or ())))),
            upstreams={**before.upstreams, **dict(self._upstreams(data, hashes))},
            agents={**before.agents, **{n: _grant(g) for n, g in (data.get("agents") or {}).items()}},
        )

    def _upstreams(
        self, data: dict[str, Any], hashes: Mapping[str, str]
    ) -> Iterator[tuple[str, ConfiguredUpstream]]:
        for name, said in (data.get("upstreams") or {}).items():
            secrets = {
                secret: SecretSource(kind=kind, where=str(where))
                for secret, source in (said.get("secrets") or {}).items()
                for kind, where in source.items()
            }
            folder = str(Path(self._path).parent)
            upstream = ConfiguredUpstream(
                name=name,
                kind="mcp" if "mcp" in said else "openapi",
                data=said,
                written=self._document.data["upstreams"][name],
                secrets=secrets,
                folder=folder,
                document_hash=hashes.get(name, ""),
                is_project=self._is_project,
            )
            yield name, upstream

    def _unconfined(self, data: dict[str, Any]) -> Iterator[str]:
        """Names as they are; paths from the project's folder, or the home of the user's own file."""
        root = Path(self._path).parent.parent
        for name in data.get("unconfined") or ():
            is_path = "/" in name or name.endswith(".py")
            yield os.path.realpath(root / name) if is_path else name

    def _disabled(self, data: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for pointer in ("/disabled_tools", "/tool_registry/disabled_tools"):
            for index, name in enumerate(at(data, pointer) or ()):
                yield name, f"disabled in {self._document.place(f'{pointer}/{index}')}"

    def _tools_files(self, data: dict[str, Any], code: Mapping[str, str]) -> Iterator[ConfiguredToolsFile]:
        for name in _tools_file_names(data):
            yield ConfiguredToolsFile(
                name=name,
                root=str(Path(self._path).parent.parent),
                is_project=self._is_project,
                code=code,
            )

    def _tools(
        self, data: dict[str, Any], code: Mapping[str, str], *, held_back: str
    ) -> Iterator[ConfiguredTool]:
        root = str(Path(self._path).parent.parent) if self._is_project else ""
        for pointer in TOOL_LISTS:
            for index, tool in enumerate(at(data, pointer) or ()):
                name = tool.get("name") if isinstance(tool, dict) else None
                yield ConfiguredTool(
                    data=tool,
                    name=name if isinstance(name, str) and name else f"#{index + 1}",
                    locate=partial(_locate, self._document, f"{pointer}/{index}"),
                    is_project=self._is_project,
                    held_back=held_back,
                    root=root,
                    code=code,
                )


def _tools_file_names(data: Any) -> list[str]:
    """The Python files and modules that `tools:` names."""
    listed = data.get("tools") if isinstance(data, dict) else None
    return [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []


def _with_policies(merged: Settings, files: "Sequence[PolicyFile]") -> Settings:
    if not files:
        return merged
    policies = (*merged.policies, *(file.source for file in files))
    if len(policies) > 1:
        from toolkeep.config.policy_files import check_together

        check_together(policies)
    examples = (*merged.examples, *(one for file in files for one in file.examples))
    return replace(merged, policies=policies, examples=examples)


def _to_look_at(data: dict[str, Any], unresolved: set[str]) -> dict[str, Any]:
    """The tools and agents of a file that nobody accepted; where it would send events is left out."""
    kept = {key: value for key, value in data.items() if key not in _TELLS_OTHERS}
    agents = (data.get("agents") or {}).items()
    if agents:
        kept["agents"] = {agent: _known_of(grant, agent, unresolved) for agent, grant in agents}
    if _has_unresolved_flow(unresolved):
        kept.pop("flow", None)
    return kept


def _has_unresolved_flow(unresolved: set[str]) -> bool:
    return any(pointer.startswith("/flow/") for pointer in unresolved)


_TELLS_OTHERS = frozenset(("audit", "database", "events", "fleet", "identity", "web_search", "worker"))


def _known_of(grant: dict[str, Any], agent: str, unresolved: set[str]) -> dict[str, Any]:
    """The grant of an agent, without what depends on a variable."""
    held = list(grant.get("capabilities") or ())
    pointer = f"/agents/{escaped(agent)}/capabilities"
    known = [item for index, item in enumerate(held) if f"{pointer}/{index}" not in unresolved]
    return {**grant, "capabilities": known}


def _shown_document(data: dict[str, Any], name: str, digest: str) -> str:
    shown = visible(document_of(data["upstreams"][name]))
    return f"{shown} with the SHA-256 {digest}" if digest else f"{shown}, which is not there,"


def document_hash(path: Path) -> str:
    """The SHA-256 of a regular file within the size limit; empty if there is none."""
    try:
        raw = read_ordinary(path, DEFINITION_FILE_BYTES)
    except FileUnreadable:
        return ""
    return "" if raw is None else hashlib.sha256(raw).hexdigest()


def _wrong_with_url(url: str) -> str | None:
    """A webhook uses TLS, or stays on this machine: events hold names and arguments."""
    parts = urllib.parse.urlsplit(url)
    is_here = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
    is_safe = parts.scheme == "https" and bool(parts.hostname)
    return None if is_here or is_safe else "a webhook must start with https://"


def _wrong_with_witness_url(url: str) -> str:
    """A witness is asked over TLS, or on this machine, at a URL that two parsers read alike."""
    from toolkeep.network.hosts import HostRefused, read_url

    try:
        host = read_url(url)
    except HostRefused as refused:
        return f"the URL of a witness cannot be used: {refused.reason}"
    is_here = host.scheme == "http" and host.name in ("127.0.0.1", "::1")
    return "" if host.scheme == "https" or is_here else "the URL of a witness must start with https://"


def _wrong_with_witness_key(text: str) -> str:
    return _wrong_with_key(text, is_witness=True)


def _wrong_with_log_key(text: str) -> str:
    return _wrong_with_key(text, is_witness=False)


def _wrong_with_key(text: str, *, is_witness: bool) -> str:
    from toolkeep.audit.errors import NoteInvalid
    from toolkeep.audit.signed_note import Algorithm, VerifierKey

    try:
        key = VerifierKey.parse(text)
    except NoteInvalid as error:
        return error.message
    # A log's key as that of a witness would let the log cosign itself.
    if is_witness and key.algorithm is not Algorithm.COSIGNATURE:
        return "this is the key of a log; `toolkeep audit witness` prints that of a witness"
    if not is_witness and key.algorithm is not Algorithm.ED25519:
        return "this is the key of a witness; `toolkeep audit key` prints that of a log"
    return ""


def _locate(document: Document, pointer: str, field: str) -> Place:
    """The position of a field of a tool, in any of its spellings."""
    name, slash, inside = field.partition("/")
    data = at(document.data, pointer.rpartition("/")[0])
    tool = data[int(pointer.rpartition("/")[2])] if isinstance(data, list) else None
    spellings = (name, *(other for other, usual in OTHER_SPELLINGS.items() if usual == name))
    written = next((s for s in spellings if isinstance(tool, dict) and s in tool), name)
    return document.place(f"{pointer}/{written}{slash}{inside}" if field else pointer)


def _pointer_in(data: Any, shown: str) -> str:
    """The real pointer behind the one in an error, which may be shortened or escaped."""
    pointer = ""
    for step in steps_of(shown):
        named = (name for name in data if step in (name, echo_name(name))) if isinstance(data, dict) else ()
        key = next(iter(named), step)
        try:
            data = child(data, key)
        except KeyError:
            data = None
        pointer = f"{pointer}/{escaped(key)}"
    return pointer


def _flow(before: FlowSettings | None, said: dict[str, Any] | None) -> FlowSettings | None:
    """The settings of a file over those of the one before it, whose policies stay in force."""
    if said is None:
        return before
    return read_flow(said).beside(before)


def _absolute(path: str | None) -> str:
    """The absolute path as of now: the working folder of a program may change."""
    return str(Path(path).absolute()) if path else ""


def _event_webhook(data: dict[str, Any] | None) -> EventWebhook | None:
    if not data:
        return None
    return EventWebhook(url=data["url"], secret=data["secret"], types=tuple(data.get("types") or ()))


def _database(data: dict[str, Any] | None) -> DatabaseSettings | None:
    if not data:
        return None
    return DatabaseSettings(
        url=data["url"],
        key=data.get("key") or "",
        key_file=_absolute(data.get("key_file")),
        is_single=data.get("single") or False,
    )


def _grant(data: dict[str, Any]) -> AgentGrant:
    inherited = DEFAULT_GRANT if data.get("inherit") else Grant()
    own = map(Capability.read, data.get("capabilities") or ())
    return AgentGrant(
        description=data.get("description") or "",
        capabilities=tuple(dict.fromkeys((*inherited.capabilities, *own))),
        permissions=tuple(dict.fromkeys((*inherited.permissions, *(data.get("permissions") or ())))),
    )


def _without_blanks(data: Any) -> Any:
    """The data without empty sections and lists, in which everything is a comment."""
    if not isinstance(data, dict):
        return data
    filled = {key: value for key, value in data.items() if value is not None or key not in _SECTIONS}
    for name, section in filled.items():
        if isinstance(section, dict) and name == "agents":
            filled[name] = {agent: {} if held is None else held for agent, held in section.items()}
        elif isinstance(section, dict):
            filled[name] = {k: v for k, v in section.items() if v is not None or k not in _SECTIONS}
    return filled


_SECTIONS = frozenset(
    {
        "features", "tool_registry", "tools", "agents", "audit", "disabled_tools", "permissions",
        "custom_tools", "custom", "providers", "policies", "approvals", "web_search", "upstreams",
        "database", "events", "webhook", "fleet", "worker", "identity",
    }
)  # fmt: skip


def _fix(violation: Violation) -> str:
    """What to write instead, if the message does not say it already."""
    if violation.code is Code.WRONG_TYPE:
        return ""
    says_more = violation.suggestion and violation.expected not in violation.suggestion
    return f"; expected {violation.expected}." + (f" {violation.suggestion}" if says_more else "")


def _without_tools(data: dict[str, Any]) -> dict[str, Any]:
    """The data with its lists of tools emptied: a bad tool is skipped and does not invalidate the file."""
    copy = dict(data)
    for pointer in TOOL_LISTS:
        section, key = pointer.split("/")[1:]
        if isinstance(copy.get(section), dict) and isinstance(copy[section].get(key), list):
            copy[section] = {**copy[section], key: []}
    return copy


def violations(data: Any) -> tuple[Violation, ...]:
    """Every schema violation in the data of a file."""
    if _is_valid()(data):
        return ()
    from toolkeep.validation.faults import find_faults
    from toolkeep.validation.report import violations_of

    schema = _compiled()
    return violations_of(schema, data, find_faults(schema, data, limit=schema.limits.errors))


@cache
def _is_valid() -> Callable[[Any], bool]:
    """The engine's check alone, as `_compiled` builds it. Most files are valid; what explains faults
    takes 14 ms to build."""
    return compile_schema(close_objects(resolve_references(FILE_SCHEMA)), Dialect.DRAFT_2020_12).is_valid


@cache
def _compiled() -> "CompiledSchema":
    from toolkeep.validation.compile import compile_arguments

    compilation = compile_arguments(FILE_SCHEMA, by_hand=True, limits=DEFAULT_LIMITS)
    if compilation.compiled is None:
        raise RuntimeError(f"the schema of the configuration is broken: {compilation.problems}")
    return compilation.compiled
