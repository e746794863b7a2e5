"""What a configuration file would run, grant or loosen: what a person is asked to accept.

A file without such effects is inert: it only describes tools and disables things, and takes effect at once.
"""

import json
import logging
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from toolkeep.config.env_interpolation import TOOL_LISTS
from toolkeep.config.fleet_settings import NATS_FILES
from toolkeep.config.settings import Effect, EffectKind, Settings
from toolkeep.definitions.vocabulary import Tier
from toolkeep.json_values.pointers import escaped
from toolkeep.json_values.yaml import Document
from toolkeep.limits import Limits
from toolkeep.policy.policy_settings import DEFAULT_GRANT
from toolkeep.text.display import visible

if TYPE_CHECKING:
    from toolkeep.config.policy_files import PolicyFile

LIMIT_FIELDS = {
    "max_schema_size": "schema_bytes",
    "max_schema_depth": "schema_depth",
    "max_argument_size": "argument_bytes",
    "max_argument_depth": "argument_depth",
    "max_fanout": "fanout",
    "max_work": "work",
    "max_errors": "errors",
}
"""Keys of `tool_registry` and the limits that they set."""

LEVELS: dict[str | None, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class ConsentItems:
    """The effects of one checked file compared with the settings without it."""

    def __init__(
        self,
        document: Document,
        data: dict[str, Any],
        variables: Iterable[tuple[str, str]],
        before: Settings,
        policy_files: Iterable["PolicyFile"] = (),
        documents: Mapping[str, str] | None = None,
    ) -> None:
        """`documents` gives the document of each upstream, and its hash."""
        self._document = document
        self._data = data
        self._variables = variables
        self._before = before
        self._policy_files = policy_files
        self._documents = documents or {}

    def all(self) -> tuple[Effect, ...]:
        """Runs first, then grants, then loosens, each in the order of the file."""
        return (*self._runs(), *self._grants(), *self._loosens())

    def _effect(self, kind: EffectKind, what: str, pointer: str) -> Effect:
        return Effect(kind=kind, what=what, locate=partial(self._document.key_place, pointer))

    def _written(self, *path: str | int) -> str:
        """What the file itself says: a default is not what a variable will hold."""
        value: Any = self._document.data
        for key in path:
            value = value[key]
        return visible(_text(value))

    def _runs(self) -> Iterator[Effect]:
        for pointer in TOOL_LISTS:
            as_written = at(self._document.data, pointer)
            for index, tool in enumerate(at(self._data, pointer) or ()):
                written = as_written[index] if isinstance(as_written, list) else tool
                if isinstance(tool, dict) and _may_run(tool, written):
                    what = f"tool '{visible(str(written.get('name', '?')))}' {_how(written)}"
                    yield self._effect("runs", what, f"{pointer}/{index}")
        listed = self._data.get("tools")
        for index in range(len(listed) if isinstance(listed, list) else 0):
            yield self._effect("runs", tools_effect(self._written("tools", index)), f"/tools/{index}")
        for index in range(len(at(self._data, "/tool_registry/providers") or ())):
            name = self._written("tool_registry", "providers", index)
            what = f"provider '{name}' runs its code in this process"
            yield self._effect("runs", what, f"/tool_registry/providers/{index}")
        for name in self._data.get("upstreams") or ():
            document = self._documents.get(name, "")
            what = f"upstream '{visible(name)}' {self._asked(name)} as {document} says"
            yield self._effect("runs", what, f"/upstreams/{escaped(name)}")

    def _asked(self, name: str) -> str:
        """The address that an upstream calls, in full: consent covers every character."""
        said = self._document.data["upstreams"][name]
        if "url" in said:
            headers = f" with the headers {_text(said['headers'])}" if "headers" in said else ""
            return visible(f"asks {_text(said['url'])}{headers}")
        argv = said["command"]
        shown = shlex.join(map(str, argv)) if isinstance(argv, list) else _text(argv)
        more = "".join(f", {key} {_text(said[key])}" for key in ("environment", "code") if key in said)
        return visible(f"runs {shown}{more}")

    def _grants(self) -> Iterator[Effect]:
        for agent, grant in (self._data.get("agents") or {}).items():
            yield self._effect(
                "grants", f"agent '{visible(agent)}' may call tools", f"/agents/{escaped(agent)}"
            )
            if grant.get("inherit"):
                held = ", ".join((*map(str, DEFAULT_GRANT.capabilities), *DEFAULT_GRANT.permissions))
                what = f"agent '{visible(agent)}' holds the defaults: {held}"
                yield self._effect("grants", what, f"/agents/{escaped(agent)}/inherit")
            for kind in ("capabilities", "permissions"):
                for index in range(len(grant.get(kind) or ())):
                    pointer = f"/agents/{escaped(agent)}/{kind}/{index}"
                    what = f"agent '{visible(agent)}' holds {self._written('agents', agent, kind, index)}"
                    yield self._effect("grants", what, pointer)
        for index in range(len(self._data.get("permissions") or ())):
            what = f"permission {self._written('permissions', index)} exists"
            yield self._effect("grants", what, f"/permissions/{index}")
        for index, file in enumerate(self._policy_files):
            yield self._effect("grants", file.summary, f"/policies/{index}")
        yield from self._audit_grants()
        if at(self._data, "/undo/days") is not None:
            what = f"what tools replace in files is kept for {self._written('undo', 'days')} days"
            yield self._effect("grants", what, "/undo/days")
        if self._data.get("web_search"):
            what = f"searches of the web go to {self._written('web_search', 'url')}"
            yield self._effect("grants", what, "/web_search/url")
        yield from self._upstream_grants()
        if at(self._data, "/events/webhook"):
            what = f"events are posted to {self._written('events', 'webhook', 'url')}"
            yield self._effect("grants", what, "/events/webhook/url")
        if self._data.get("database"):
            place = _shown_place(self._written("database", "url"))
            what = f"custom tools, tokens and idempotency keys are those of {place}"
            yield self._effect("grants", what, "/database/url")
        yield from self._fleet_grants()
        yield from self._worker_grants()
        yield from self._identity_grants()
        for name, pointer in self._variables:
            yield self._effect("grants", f"the file reads the environment variable {name}", pointer)

    def _audit_grants(self) -> Iterator[Effect]:
        audit = self._data.get("audit") or {}
        for key in ("checkpoint_file", "checkpoint_webhook"):
            if key in audit:
                what = f"checkpoints of the log go to {self._written('audit', key)}"
                yield self._effect("grants", what, f"/audit/{key}")
        for index in range(len(audit.get("witnesses") or ())):
            url, key = (self._written("audit", "witnesses", index, part) for part in ("url", "key"))
            what = f"checkpoints of the log go to {url}, and {key} cosigns them"
            yield self._effect("grants", what, f"/audit/witnesses/{index}")
        for index in range(len(audit.get("witness_for") or ())):
            what = f"a server cosigns the log of {self._written('audit', 'witness_for', index)}"
            yield self._effect("grants", what, f"/audit/witness_for/{index}")

    def _fleet_grants(self) -> Iterator[Effect]:
        fleet = at(self._document.data, "/fleet") or {}
        for tool, label in (fleet.get("runs_on") or {}).items():
            on = f" with the label '{visible(label)}'" if label else ""
            where = f"go to workers{on} through NATS at {self._nats('fleet')}"
            if label is None:
                where = "run on this machine, whatever its definition says"
            what = f"calls of '{visible(tool)}' {where}"
            yield self._effect("grants", what, f"/fleet/runs_on/{escaped(tool)}")
        for index, worker in enumerate(fleet.get("workers") or ()):
            tools, levels, agents = (_all_or(worker, key) for key in ("tools", "levels", "agents"))
            labels = f", as {', '.join(worker['labels'])}" if worker.get("labels") else ""
            named = f"worker '{worker['name']}' ({worker['key']})"
            what = f"{named} may run {tools} at {levels} for {agents}{labels}"
            yield self._effect("grants", visible(what), f"/fleet/workers/{index}")

    def _worker_grants(self) -> Iterator[Effect]:
        worker = at(self._document.data, "/worker") or {}
        if worker.get("nats"):
            what = f"a worker here takes calls through NATS at {self._nats('worker')}"
            yield self._effect("grants", what, "/worker/nats")
        for index, server in enumerate(worker.get("servers") or ()):
            tools, agents = _all_or(server, "tools"), _all_or(server, "agents")
            held = ", ".join(server.get("capabilities") or ()) or "no capability"
            named = f"server '{server.get('name') or ''}' ({server['key']})"
            code = ", and may install their code" if server.get("code") else ""
            what = f"{named} may have {tools} run here for {agents} with {held}{code}"
            yield self._effect("grants", visible(what), f"/worker/servers/{index}")

    def _identity_grants(self) -> Iterator[Effect]:
        identity = at(self._document.data, "/identity") or {}
        for index, issuer in enumerate(identity.get("issuers") or ()):
            said = f"with keys from {issuer['keys']}" if issuer.get("keys") else "with the keys that it names"
            reached = f", reached at {issuer['host']}" if issuer.get("host") else ""
            pointer, page = f"/identity/issuers/{index}", issuer.get("page") or {}
            if issuer.get("grants"):  # without them, its access tokens are refused
                what = f"tokens of {issuer['issuer']} for {issuer['audience']} count, {said}{reached}"
                yield self._effect("grants", visible(what), pointer)
            yield from self._claim_grants(issuer["issuer"], issuer.get("grants") or (), f"{pointer}/grants")
            if page:
                secret = (
                    f", with the secret in {page['client_secret_file']}"
                    if "client_secret_file" in page
                    else ""
                )
                what = f"people sign in to the page with {issuer['issuer']} as {page['client_id']}{secret}"
                yield self._effect("grants", visible(f"{what}, {said}{reached}"), f"{pointer}/page")
                yield from self._claim_grants(issuer["issuer"], page["grants"], f"{pointer}/page/grants")

    def _claim_grants(self, issuer: str, grants: Sequence[Any], pointer: str) -> Iterator[Effect]:
        where = " on the page" if pointer.endswith("/page/grants") else ""
        for number, grant in enumerate(grants):
            who = " and ".join(f"{name} {value}" for name, value in grant["claims"].items())
            gets = f"agent {grant['agent']} with {', '.join(grant['scopes'])}{where}"
            what = f"whom {issuer} names with {who} is {gets}"
            yield self._effect("grants", visible(what), f"{pointer}/{number}")

    def _nats(self, key: str) -> str:
        """The addresses, and the files that sign in there."""
        said = self._document.data[key]["nats"]
        files = "".join(f", {name} {_text(said[name])}" for name in NATS_FILES if name in said)
        return visible(f"{_text(said['servers'])}{files}")

    def _upstream_grants(self) -> Iterator[Effect]:
        for upstream, said in (self._data.get("upstreams") or {}).items():
            for secret, where in (said.get("secrets") or {}).items():
                ((kind, _),) = where.items()
                source = self._written("upstreams", upstream, "secrets", secret, kind)
                what = f"upstream '{visible(upstream)}' is given {visible(secret)} from {kind} {source}"
                yield self._effect("grants", what, f"/upstreams/{escaped(upstream)}/secrets")
            if "oauth" in said:
                what = f"upstream '{visible(upstream)}' is sent the token of a sign-in"
                yield self._effect("grants", what, f"/upstreams/{escaped(upstream)}/oauth")
            for index in range(len(said.get("capabilities") or ())):
                held = self._written("upstreams", upstream, "capabilities", index)
                what = f"upstream '{visible(upstream)}' may reach {held}"
                yield self._effect("grants", what, f"/upstreams/{escaped(upstream)}/capabilities/{index}")
            for key in ("prompts", "resources", "completions", "subscriptions"):
                for index in range(len(said.get(key) or ())):
                    which = self._written("upstreams", upstream, key, index)
                    what = f"upstream '{visible(upstream)}' passes on {key} {which}"
                    yield self._effect("grants", what, f"/upstreams/{escaped(upstream)}/{key}/{index}")
            yield from self._tool_grants(upstream, said)

    def _tool_grants(self, upstream: str, said: Mapping[str, Any]) -> Iterator[Effect]:
        """What is said about single tools of an upstream."""
        place = f"/upstreams/{escaped(upstream)}"
        for operation, danger in (said.get("danger") or {}).items():
            what = f"{_tool_of(operation, upstream)} is called {visible(str(danger))}"
            yield self._effect("grants", what, f"{place}/danger")
        for operation, effects in (said.get("effects") or {}).items():
            does = "only reads" if effects == "reads" else visible(str(effects))
            yield self._effect("grants", f"{_tool_of(operation, upstream)} {does}", f"{place}/effects")
        for operation, roles in (said.get("flow") or {}).items():
            of = _tool_of(operation, upstream)
            for argument, role in roles.items():
                if argument == "result":
                    for pointer, label in role.items():
                        where = visible(pointer) or "everything"
                        what = f"{where} in results of {of} is labelled {visible(_text(label))}"
                        yield self._effect("grants", what, f"{place}/flow")
                else:
                    what = f"{visible(argument)} of {of} is called {visible(str(role))}"
                    yield self._effect("grants", what, f"{place}/flow")

    def _loosens(self) -> Iterator[Effect]:
        registry = self._data.get("tool_registry") or {}
        limits: Limits = self._before.limits
        for key, attribute in LIMIT_FIELDS.items():
            if key in registry and registry[key] > (usual := getattr(limits, attribute)):
                what = f"{key} rises from {usual} to {registry[key]}"
                yield self._effect("loosens", what, f"/tool_registry/{key}")
        if registry.get("include_actual_values") and not self._before.include_actual_values:
            pointer = "/tool_registry/include_actual_values"
            yield self._effect("loosens", "errors show argument values", pointer)
        level = LEVELS.get(
            registry.get("validation_failure_log_level"), self._before.validation_failure_level
        )
        if level < self._before.validation_failure_level:
            pointer = "/tool_registry/validation_failure_log_level"
            yield self._effect("loosens", "refused calls are logged at a lower level", pointer)
        for pointer in ("/disabled_tools", "/tool_registry/disabled_tools"):
            for index, name in enumerate(at(self._data, pointer) or ()):
                if "@" in name:
                    what = f"without {visible(name)} another version of it may answer"
                    yield self._effect("loosens", what, f"{pointer}/{index}")
        for index in range(len(self._data.get("unconfined") or ())):
            what = f"{self._written('unconfined', index)} runs unconfined where a machine cannot confine it"
            yield self._effect("loosens", what, f"/unconfined/{index}")
        yield from self._loosens_flow()
        tier = self._data.get("tier")
        if tier is not None and Tier.read(tier).number > self._before.tier.number:
            yield self._effect("loosens", f"the tier rises to {Tier.read(tier).value}", "/tier")
        if at(self._data, "/features/tools/definition") and not self._before.allows_definitions:
            pointer = "/features/tools/definition"
            yield self._effect("loosens", "custom definitions are allowed again", pointer)

    def _loosens_flow(self) -> Iterator[Effect]:
        if at(self._data, "/flow/spare"):
            what = "calls of medium danger that the flow policies let pass need no approval"
            yield self._effect("loosens", what, "/flow/spare")
        if at(self._data, "/flow/view") == "typed":
            what = (
                "models are shown references, so that a session stays clean; programs must show views alone"
            )
            yield self._effect("loosens", what, "/flow/view")
        idle_s = at(self._data, "/flow/idle_s")
        if idle_s is not None:
            what = f"after {idle_s:g} s without a call, a remote caller's session begins anew"
            yield self._effect("loosens", what, "/flow/idle_s")


def _all_or(said: Mapping[str, Any], key: str) -> str:
    """A list of names as a file says it; by default everything."""
    names = said.get(key) or ["*"]
    return f"all {key}" if "*" in names else f"{key} {', '.join(map(str, names))}"


def _tool_of(operation: str, upstream: str) -> str:
    return f"{visible(operation)} of upstream '{visible(upstream)}'"


def tools_effect(name: str) -> str:
    """What naming a Python file of tools has for an effect."""
    return f"the tools of {name} run, each as it declares itself"


def _shown_place(url: str) -> str:
    """A database URL without user and password."""
    return url if url.startswith("${") else re.sub(r"//[^/]*@", "//…@", url)


def at(data: Any, pointer: str) -> Any:
    """The value at a plain pointer; None if there is none."""
    for key in pointer.split("/")[1:]:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _may_run(tool: dict[str, Any], written: dict[str, Any]) -> bool:
    """Whether the tool has a runner, or could have one once variables are resolved."""
    by_client = tool.get("client_executed") or isinstance(written.get("client_executed"), str)
    return tool.get("run") is not None or bool(by_client)


def _how(tool: dict[str, Any]) -> str:
    """What runs a tool, in full: consent covers every character."""
    run = tool.get("run")
    if run is None:
        return "is executed by the client"
    if isinstance(run, dict) and len(run) == 1:
        ((kind, target),) = run.items()
        shown = shlex.join(map(str, target)) if isinstance(target, list) else _text(target)
        return f"runs {visible(str(kind))}: {visible(shown)}"
    return f"runs {visible(_text(run))}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
