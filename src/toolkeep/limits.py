"""Limits, each with its reason.

`Limits`, `CallLimits`, `McpLimits` and `ServerLimits` can be configured; the constants are fixed.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- definitions (DEF) -------------------------------------------------------------------------

NAME_CHARS: Final = 64
"""Maximum length of a tool name: the smallest limit among the model providers."""

DESCRIPTION_CHARS: Final = 1024
"""Maximum length of a description: the width of its database column."""

VERSION_CHARS: Final = 32
"""Maximum length of a version: the width of its database column."""

LABEL_CHARS: Final = 64
"""Maximum length of a label of workers."""

ALIASES: Final = 100
"""Maximum number of aliases of one tool."""

VERSIONS: Final = 100
"""Maximum number of versions of one tool."""

CUSTOM_TOOLS: Final = 10_000
"""Maximum number of custom tools in one configuration file."""

STORED_JSON_BYTES: Final = 4096
"""Maximum size of constraints and permissions as JSON: the width of their columns."""

EXECUTION_SECONDS: Final = (1.0, 600.0)
"""Range of max_execution_time: below a second nothing useful runs, above ten minutes it is a batch job."""

OUTPUT_BYTES: Final = (KIB, 100 * MIB)
"""Range of max_output_size."""

DEFAULT_EXECUTION_SECONDS: Final = 60.0
DEFAULT_OUTPUT_BYTES: Final = 10 * MIB
DEFAULT_MEMORY_BYTES: Final = 512 * MIB
RESTRICTED_MEMORY_BYTES: Final = 64 * MIB
"""What one execution gets if its definition says nothing; the last at the level restricted."""

SLOW_COMPILATION_MS: Final = 10.0
"""A definition that takes longer to validate and compile causes a warning (VAL-11)."""

DEFINITION_FILE_BYTES: Final = 16 * MIB
"""Maximum size of a definition file; ten thousand ordinary tools fit."""

DEFINITION_FILE_NODES: Final = 2_000_000
"""Maximum number of JSON values in a definition file after YAML alias expansion (alias bomb)."""

DOCUMENT_DEPTH: Final = 100
"""Maximum nesting of lists and objects in a file."""

INTEGER_DIGITS: Final = 4300
"""Maximum number of digits of an integer: Python converts no longer one to text."""

CACHE_FILE_BYTES: Final = 16 * MIB
"""Maximum size of a file of the state folder that only saves time."""

CONFIG_FILE_BYTES: Final = 4 * MIB
"""Maximum size of a configuration file; thousands of tools fit, and a hostile one is refused within
seconds."""

# --- schemas (VAL-7) ---------------------------------------------------------------------------

SCHEMA_NODES: Final = 2_000
"""Maximum number of subschemas after resolving references and closing objects. Real tools need at most
335."""

FANOUT: Final = 256
"""Maximum number of subschema evaluations per JSON value of a call. Real tools need at most 13."""

PATTERNS: Final = 64
"""Maximum number of regular expressions in one schema; each is compiled at registration."""

PATTERN_BYTES: Final = 64 * KIB
"""Maximum compiled size of one regular expression. Matching is linear in text × size (no ReDoS)."""

PATTERN_CACHE_BYTES: Final = 256 * KIB
"""Size of the regular expression engine's DFA cache."""

MATCHED_CHARS: Final = 8192
"""Maximum length of a string that is matched against a pattern or format."""

# --- arguments (VAL-7) -------------------------------------------------------------------------

WORK: Final = 300_000
"""Maximum number of validation steps of one call: values × fan-out, and characters × pattern size. The
slowest step measured takes 150 ns, so no admitted call exceeds 100 ms."""

FILLING_STEPS: Final = 100_000
"""Maximum number of default values visited when a schema is registered: 50 ms."""

BRACKETS: Final = 50_000
"""Objects and arrays in one call or one answer: to parse, count and release so many takes half of the
100 ms that either may take."""

REPORT_WORK: Final = 4_000
"""Maximum number of errors collected for one call (some 10 µs each); a larger call is searched part by part,
with what is left."""

FIRST_ERROR_WORK: Final = 20_000
"""Values × fan-out of one call for which the engine is asked for its first error; it copies the value into it
(0.3 µs a value). Beyond, the place alone is named."""

REPORT_DIGITS: Final = 50_000
"""Maximum number of digits of integers beyond 64 bits, times fan-out, for which errors are collected; the
engine formats each for each error, at 0.4 µs per digit."""

DEFERRED_BYTES: Final = 64 * KIB
"""Size of a refused call, times possible errors per value, up to which error texts and repair are computed
lazily. Until then a refusal keeps the arguments alive, and callers may hold many refusals."""

ERRORS: Final = 50
"""Maximum number of violations in one refusal (VAL-5)."""

ECHOED_CHARS: Final = 80
"""Characters of a value, name or pattern that are shown in an error."""

LISTED_NAMES: Final = 20
"""Maximum number of allowed names or values listed in one error, and of tools suggested for an unknown name
(VAL-8)."""

MODEL_TEXT_CHARS: Final = 1200
"""Maximum length of a refusal's text for a model."""

HINT_CHARS: Final = 2000
"""Maximum length of the one-line signature in a refusal."""

LOGGED_CHARS: Final = 1000
"""Characters of arguments in a debug log (VAL-6)."""

# --- search (REG-6) ----------------------------------------------------------------------------

QUERY_CHARS: Final = 4_000
"""Maximum length of a search query."""

QUERY_WORDS: Final = 64
"""Words of a query that are scored, the rarest ones."""

QUERY_WORK: Final = 8_000
"""Maximum number of scores that one query adds up, 0.2 µs each; the most common words are dropped first."""

INDEXED_CHARS: Final = 20_000
"""Characters of a description, or of all parameters, that are indexed. Real tools have at most 14,145."""

INDEXED_PARAMETER_TEXTS: Final = 500
"""Maximum number of parameter names and descriptions that are indexed, outer ones first. Real tools have at
most 151."""

WORD_CHARS: Final = 64
"""Longer words are split; no name is longer."""

# --- refusals (VAL-7) --------------------------------------------------------------------------

REMEMBERED_REFUSALS: Final = 1000
"""Refused calls that are remembered, to recognize a repeated one."""

REFUSALS_IN_A_ROW: Final = 20
"""Consecutive refusals of one tool to one agent before details are withheld."""

QUIET_SECONDS: Final = 30.0
"""How long details are withheld after too many refusals."""

# --- providers (PRV) ---------------------------------------------------------------------------

INLINED_SCHEMAS: Final = 5_000
"""Maximum number of subschemas after inlining references: a small schema must not expand without end."""

STRICT_PROPERTIES: Final = 5_000
STRICT_DEPTH: Final = 10
STRICT_TEXT_CHARS: Final = 120_000
STRICT_ENUM_VALUES: Final = 1_000
"""Limits of OpenAI's strict schemas: properties, nesting, characters of names and values, enum values."""

STRICT_CHOICE_BYTES: Final = 64 * KIB
"""Maximum size of strict arguments with alternatives: each level of them is compared as a whole."""

LONG_ENUM: Final = (250, 15_000)
"""A string enum with more values than the first may have no more characters than the second."""

CLAUDE_STRICT_TOOLS: Final = 20
CLAUDE_OPTIONAL_PARAMETERS: Final = 24
CLAUDE_UNION_PARAMETERS: Final = 16
"""Limits of Claude's strict tools in one request."""

COHERE_STRICT_FIELDS: Final = 200
"""Maximum number of parameters of all tools together for Cohere's strict_tools."""

RESULT_CHARS: Final = 100_000
"""Characters of a result's text that are sent to a model; the rest is read by reference. About 25,000
tokens."""

RESULT_BLOB_BYTES: Final = 5 * MIB
"""Maximum size of an image or file sent to a model; vendors accept at most 5 MB for an image."""

RESPONSE_BYTES: Final = 32 * MIB
"""Maximum size of a model's response as text."""

STREAM_CALLS: Final = 1_000
"""Maximum number of calls of one response that are executed."""

STREAM_CALLS_MOST: Final = 10_000
"""Maximum number of calls in one stream: beyond `STREAM_CALLS` they are only answered."""


# --- network (SBX-4) ---------------------------------------------------------------------------

RESOLVE_SECONDS: Final = 10.0
"""Time limit for DNS resolution; the system's own resolver gives up after 5 to 30 s."""

RESOLUTIONS_AT_ONCE: Final = 32
"""Maximum number of concurrent DNS resolutions; each blocks a thread that nothing can stop."""

RESOLVED_ADDRESSES: Final = 64
"""Maximum number of addresses of one name. Each is vetted; a name with more is not ordinary."""

DIALED_ADDRESSES: Final = 6
"""Addresses of one name that are dialed."""

DIAL_SECONDS: Final = 10.0
"""Time limit for connecting to a host, over all of its addresses and the TLS handshake."""

DIAL_NEXT_SECONDS: Final = 0.25
"""Delay before the next address is tried concurrently (Happy Eyeballs, RFC 8305 section 5)."""

NETWORK_REQUESTS: Final = 100
"""Default maximum number of requests of one call, without `max_network`."""

NETWORK_BYTES: Final = 32 * MIB
"""Default maximum number of bytes of one call in both directions, without `max_network`."""

NETWORK_CONNECTIONS: Final = 16
"""Maximum number of concurrent connections of one worker; browsers open six per host."""

NETWORK_IDLE_SECONDS: Final = 30.0
"""Idle timeout of a connection."""

NETWORK_CONTACTS: Final = 1_000
"""Contacts of one call that are recorded."""

RETRY_SECONDS: Final = 0.25
"""Initial retry delay for an unreachable server; doubled each time (exponential backoff)."""

HEAD_BYTES: Final = 32 * KIB
"""Maximum size of a request or response head: twice what most servers accept."""

ANSWER_PIECES: Final = 250_000
"""Maximum number of chunks of a response: each costs the host some 15 µs, even a single byte."""

HEAD_SECONDS: Final = 10.0
"""Time limit for a worker to send a request head or ClientHello (slowloris)."""

CLIENT_HELLO_BYTES: Final = 16 * KIB
"""Maximum size of a ClientHello; with post-quantum keys real ones have 2 KB."""

UPLOAD_BYTES: Final = 16 * MIB
"""Maximum size of an uploaded file; the argument limit, by default one megabyte, mostly applies first."""

REDIRECTS: Final = 5
"""Maximum number of redirects that are followed."""

# --- calls (EXE) -------------------------------------------------------------------------------

OUTPUT_CAP_BYTES: Final = OUTPUT_BYTES[1]
"""Hard cap of an output, which is hashed and stored whole; a tool that returns more has failed."""

OUTPUT_VALUES: Final = 1_000_000
"""Maximum number of JSON values in one output; converting so many takes a tenth of a second from a worker,
half a second in process. Shared values count each time: twenty levels that hold the next one twice are a
million."""

OUTPUT_WORK: Final = 10_000_000
"""Steps that checking one output against its schema may cost, `WORK` of them at once: a million values of
ten steps. The engine holds the interpreter: 5,000 integers beyond 64 bits under `uniqueItems` took 35 s
without it."""

OUTPUT_ESCAPES: Final = 5_000_000
"""Maximum number of backslashes in a JSON answer: the parser takes some 20 ns for each and holds the GIL. A
text of a hundred megabytes has as many lines at 20 characters each."""

LARGE_ANSWER_BYTES: Final = 256 * KIB
"""A longer answer is parsed in a thread: a shorter one takes less than 5 ms."""

LARGE_OUTPUT: Final = 10_000
"""Size (values, or hundreds of characters) from which an output is processed in a thread: some 10 ms."""

OUTPUT_DEPTH: Final = 150
"""Maximum nesting of an output; the parser that copies it stops at 200."""

APPROVAL_WAIT_SECONDS: Final = 300.0
"""Default time limit for the host's approver."""

APPROVAL_POLL_SECONDS: Final = 0.2
"""Poll interval for approvals from another process."""

APPROVALS_WAITING: Final = 100
"""Maximum number of pending approvals of one agent, so that it cannot flood the inbox."""

APPROVALS_BYTES: Final = 8 * MIB
"""Maximum size of the pending approvals of one agent; a single one may be of any size. As much is kept of
finished ones."""

SESSION_SECONDS: Final = 86_400.0
"""Maximum lifetime of a session approval: a day."""

DIFFERENCE_BYTES: Final = 1 << 20
"""Maximum size of a file whose diff is shown to an approver."""

DIFFERENCE_LINES: Final = 400
"""Maximum number of diff lines shown; the arguments are available in full."""

DIFFERENCE_STEPS: Final = 1_000_000
"""Maximum number of line comparisons for a diff: a MiB of short lines would take half an hour."""

VIEW_CHARS: Final = 20_000
"""Characters of each section of a question that a terminal shows, about four screens; the omitted number is
shown."""

RULE_DAYS: Final = 365
"""Maximum lifetime of a rule; people and tools change."""

TOUCHED: Final = 100
"""Maximum number of resources that one call may name: resolving a path takes some 60 µs."""

HELD_PLACES: Final = 400
"""Maximum number of files and folders that the calls of one agent hold open, also while they wait for
approval: each is a descriptor of the host process, which often has 1,024 in all."""

PROTECTED_ENTRIES: Final = 200_000
"""Maximum number of directory entries scanned below a folder before a worker may write it: a quarter of a
second, once."""

BODIES_WAITING: Final = 10_000
"""Maximum number of queued bodies; beyond, a body is dropped rather than a call delayed."""

BODIES_WAITING_BYTES: Final = 64 * 1024 * 1024
"""The same in bytes: results may have megabytes each."""

BODIES_LINGER_SECONDS: Final = 0.02
"""Group commit delay of bodies: one transaction for many takes a tenth of the time."""

PROGRESS_FRAMES: Final = 1_000
"""Maximum number of progress frames of one call. Our code in the worker sends fewer; more is an attack."""

PROGRESS_BYTES: Final = 2 * KIB
"""Maximum size of a progress frame as JSON: two numbers and 200 escaped characters."""

OUTPUT_PIECES: Final = 10_000
"""Maximum number of output pieces that are streamed; the rest comes with the whole."""

OUTPUT_PIECES_MOST: Final = 1_000_000
"""Maximum number of pieces of one output: each has a memory overhead."""

PROGRESS_AT_ONCE: Final = 32
"""Progress frames handled before yielding to the event loop: a flood must not delay other calls."""

PERSISTENT_PROCESSES: Final = 32
"""Maximum number of persistent processes per event loop; each holds memory."""

PROCESS_IDLE_SECONDS: Final = (1.0, 86_400.0)
"""Range of the idle timeout of a persistent process: a second to a day."""

DEFAULT_PROCESS_IDLE_SECONDS: Final = 300.0
"""The same if the definition says nothing: longer than a model thinks between two calls."""

CANCEL_GRACE_SECONDS: Final = 1.0
"""Grace period of a cancelled async tool before the call is answered without it."""

CLOSE_GRACE_SECONDS: Final = 10.0
"""Grace period of cancelled calls when a keep closes; a tool that does not end is left behind."""

CACHED_RESULTS: Final = 1000
CACHED_BYTES: Final = 32 * MIB
"""Limits of the result cache for pure calls."""

BODY_ARGUMENT_BYTES: Final = 64 * KIB
"""Maximum size of arguments that are stored beside the log (AUD-5)."""

REFUSED_KEPT: Final = 1_000
REFUSED_KEPT_BYTES: Final = 8 * MIB
"""Bodies of refused and failed calls that are kept of one agent; the oldest is dropped first. A model that
repeats a mistake all night must not fill the disk."""

REFUSED_TOTAL_BYTES: Final = 64 * MIB
"""The same of all agents: a host program may name a new agent for every call."""

UNDO_FILE_BYTES: Final = 700_000
"""The largest file whose content is kept when a built-in tool replaces it. In base64 it fits into the
arguments of the call that restores it."""

UNDO_AGENT_BYTES: Final = 64 * MIB
UNDO_TOTAL_BYTES: Final = 512 * MIB
"""What is kept of the files that one agent replaced, and all; the oldest is dropped first."""

UNDO_DAYS: Final = 7.0

REFUSED_KEPT_SECONDS: Final = 7 * 86_400.0
"""How long they are kept: as long as somebody asks why."""

NAMED_CHARS: Final = 256
"""Maximum length of names and ids in a call: tool, agent, conversation, session, correlation."""

PENDING_CALLS: Final = 10_000
"""Maximum number of pending client-side calls."""

PENDING_BYTES: Final = 64 * MIB
"""Maximum size of their arguments together."""

BATCH_CALLS: Final = 1000
"""Maximum number of calls in one batch."""


# --- WASM (SBX-3) ------------------------------------------------------------------------------

MODULE_BYTES: Final = 64 * MIB
"""Maximum size of a WASM module; an interpreter with its library has about half of it."""

COMPILED_BYTES: Final = 512 * MIB
"""Maximum size of a cached compiled module; machine code has several times the size of its module."""

CACHED_MODULES: Final = 64
"""Maximum number of cached compiled modules, in memory and on disk."""

FUEL_PER_SECOND: Final = 10_000_000_000
"""Fuel per second of one core, one unit per instruction; the fastest core measured burns 7,500,000,000, so
the deadline comes first, unless the definition grants less than a core."""

TABLE_ELEMENTS: Final = 1_000_000
TABLES: Final = 16
"""Limits of tables of one instance, eight bytes per element; a large interpreter has 20,000 in one table."""

COPIED_BYTES: Final = 64 * MIB
"""Maximum size of a single file that a WASM module reads: it is copied, because WASI preopens only
folders."""

MODULE_FILES: Final = 256
"""Maximum number of open files of a WASM module; they are descriptors of the host process."""

STDERR_BYTES: Final = 16 * KIB
"""Bytes of a WASM module's stderr that are kept, from the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """Concurrency, rate and circuit breaker limits of calls; zero calls per second means unlimited."""

    agent_concurrency: int = 256
    tool_concurrency: int = 64
    queue: int = 1024
    calls_per_second: float = 0.0
    burst: float = 100.0
    failures_in_a_row: int = 5
    suspended_s: float = 30.0
    hook_s: float = 5.0
    """Deadline of one hook of the host."""


DEFAULT_CALL_LIMITS: Final = CallLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Validation limits that a keep may set; the defaults are those of the SPEC (VAL-7)."""

    schema_bytes: int = 50 * KIB
    schema_depth: int = 20
    argument_bytes: int = MIB
    argument_depth: int = 64
    fanout: int = FANOUT
    work: int = WORK
    errors: int = ERRORS


DEFAULT_LIMITS: Final = Limits()


# --- MCP (MCP-1) -------------------------------------------------------------------------------

MCP_ID_CHARS: Final = 256
"""Maximum length of a JSON-RPC id; clients use counters or UUIDs."""

MCP_VALUES: Final = 100_000
"""Maximum number of values of one message without its arguments, counted before parsing: 4 MiB of `[],` took
a second."""

MCP_INTRODUCTION_BYTES: Final = 64 * KIB
"""Maximum size of a client's `initialize` parameters, which are kept as long as the session."""

MCP_COMPLETIONS: Final = 100
"""Maximum number of values of one completion (2025-11-25, Completion)."""

MCP_UPSTREAM_WATCHED: Final = 32
"""Maximum number of upstream resources that one agent subscribes to: each is a call that lasts."""

MCP_URI_CHARS: Final = 2_048
"""Maximum length of a subscribed resource URI."""

MCP_CLIENT_CHARS: Final = 200
"""Characters of a client's self-declared name that are recorded."""

MCP_ASKED: Final = 64
"""Maximum number of pending requests to one client."""

MCP_PARKED: Final = 256
"""Maximum number of calls that wait for the client's input (`input_required`); each holds its slots."""

MCP_AGENT_PARKED: Final = 64
"""The same for one agent, so that it cannot crowd out others."""

MCP_PARKED_SECONDS: Final = 300
"""How long they wait."""

MCP_TASKS: Final = 10_000
"""Maximum number of tasks of one server; beyond, calls are answered synchronously."""

MCP_AGENT_TASKS: Final = 1_000
"""The same for one agent; its oldest finished ones are evicted."""

MCP_AGENT_TASK_BYTES: Final = 64 * MIB
"""Maximum size of the retained task results of one agent; the oldest are evicted, the newest is kept."""

MCP_TASK_SECONDS: Final = 3_600
"""Retention of tasks: an hour; their calls are in the log."""

MCP_TASK_POLL_MS: Final = 500
"""Suggested poll interval for clients."""

MCP_TASK_AFTER_SECONDS: Final = 5.0
"""Run time after which a call becomes a task, if the client supports tasks."""

MCP_PAGE: Final = 2_000
"""Tools per page of a list. Many clients read the first page only."""

MCP_CACHE_MS: Final = 60_000
"""Cache lifetime of a list; subscribers are notified of changes at once."""

MCP_STREAM_MESSAGES: Final = 1_000
"""Maximum number of queued messages per client; beyond, notifications are dropped (backpressure)."""

MCP_UNREAD_BYTES: Final = MIB
"""The same in bytes; over stdio, reading from such a client pauses."""

MCP_SESSION_SECONDS: Final = 3_600
"""Idle timeout of an HTTP session."""

MCP_SESSIONS: Final = 1_000
"""Maximum number of HTTP sessions; beyond, the longest idle one of the agent with most sessions is ended."""

MCP_BATCH: Final = 100
"""Maximum number of messages in one batch (2025-03-26); each request counts as in flight."""

MCP_BATCH_COMMAS: Final = 100_000
"""Maximum number of commas in one batch, counted before parsing: bounds the number of values."""

MCP_RESUME_SECONDS: Final = 60
"""How long a broken stream can be resumed; its call goes on until then."""

MCP_KEPT_EVENTS: Final = 256
"""Events of one session that are kept for resumption."""

MCP_KEPT_BYTES: Final = 256 * KIB
"""The same in bytes; a larger event cannot be replayed."""

MCP_REPLAY_BYTES: Final = 64 * MIB
"""The same for all sessions together."""

FOUND_TOOLS: Final = 20
"""Definitions in one result of `find_tools`."""


class McpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one MCP server; zero messages per second means unlimited."""

    message_bytes: int = 4 * MIB
    """Twice the argument limit and more: a client may send as much again in answers and metadata."""
    in_flight: int = 1024
    messages_per_second: float = 0.0
    burst: float = 1000.0
    grace_s: float = 60.0
    """Grace period of calls after their client has sent its last message."""
    watched: int = 1000
    """Maximum number of resource subscriptions of one connection."""


DEFAULT_MCP_LIMITS: Final = McpLimits()

TOKENS: Final = 10_000
"""Maximum number of live tokens of one keep; more come from a loop that creates them."""
TOKEN_DAYS: Final = 90.0
"""Default lifetime of a token: a forgotten one expires by itself."""
TOKEN_CHARS: Final = 128
"""Maximum length of a bearer token; ours have 63. Longer ones are rejected unread."""
TOKEN_USE_SECONDS: Final = 60.0
"""Resolution of a token's time of last use: a write for each request would cost more than the request."""

STORE_CONNECT_SECONDS: Final = 5
"""Connect timeout of the store's database: opening a keep waits for it."""
STORE_BUSY_SECONDS: Final = 10.0
"""Busy timeout of the embedded store, while another process writes."""
FOLLOW_SECONDS: Final = 5.0
"""Poll interval of a shared store in addition to NOTIFY, which a proxy may swallow."""
FOLLOW_FILE_SECONDS: Final = 0.5
"""Poll interval of the embedded store for changes of other processes; a poll takes 10 µs."""
FOLLOW_PAUSE_SECONDS: Final = 0.05
"""Minimum delay between two polls of a shared store: anyone who may connect to the database can send NOTIFY
in a loop."""
CODE_FILES: Final = 2_000
"""Maximum number of a project's code files named by its configuration: each is hashed when it is read."""
CODE_SOURCE_BYTES: Final = 32 << 20
"""Maximum size of Python sources that are parsed for imports; a second per ten megabytes."""
CHANGER_CHARS: Final = 128
"""Maximum length of the name of a definition's editor."""
RECONNECT_SECONDS: Final = 5.0
"""Maximum reconnect backoff of a lost store."""
STORED_DEFINITION_BYTES: Final = 256 * KIB
"""Maximum size of a stored definition as JSON with metadata: two schemas at their limit, and as much
again."""
STORE_CONNECTIONS: Final = 5
"""Maximum number of PostgreSQL connections of one keep: definitions change rarely, and reads are cached."""

WEBHOOK_QUEUE: Final = 1_000
"""Queue size of a webhook: half a megabyte. More is dropped rather than held in memory."""
WEBHOOK_SECONDS: Final = 10.0
"""Time limit of one delivery, from DNS resolution to the last byte of the response."""
WEBHOOK_PAUSES: Final = (1.0, 5.0, 30.0, 120.0, 600.0)
"""Retry backoff; after the last attempt an event is dropped, some 13 minutes after it happened."""
WEBHOOK_ANSWER_BYTES: Final = 64 * KIB
"""Maximum size of a response with its head; only its status is used."""
WEBHOOK_CLOSE_SECONDS: Final = 5.0
"""Flush time limit when a keep closes."""
WEBHOOK_SECRET_CHARS: Final = 24
"""Minimum length of a signing secret: a shorter one can be guessed."""

# --- HTTP (WEB-1) ------------------------------------------------------------------------------

PAGE: Final = 100
PAGE_MOST: Final = 1_000
"""Page size of lists: default and maximum."""

UNSEEN_SERVER_SECONDS: Final = 10
"""A server on a shared PostgreSQL that was not seen for so long has died, or has lost the database."""

OPEN_CALLS: Final = 10_000
"""Maximum number of asynchronous calls (status 202) that can be polled."""

OPEN_CALL_SECONDS: Final = 3_600
"""Retention of finished ones; later they are in the log only."""

POLL_SECONDS: Final = 60
"""Maximum long-poll time for such a call."""

SCANNED_RECORDS: Final = 5_000
"""Maximum number of records scanned for one page of the log; a page may then be short, and continues."""

INDEXED_RECORDS: Final = 1_000_000
"""Records of the log that are indexed for searches, at most; half of them when the index is made anew."""

HEADER_BYTES: Final = 32 * KIB
"""Maximum size of request line and headers; browsers with many cookies send eight KiB."""

WAIT_FOR_PERSON_SECONDS: Final = 900.0
"""Default time that a call over HTTP waits for approval."""


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one HTTP server; zero requests per second means unlimited."""

    body_bytes: int = 2 * MIB
    """Twice the argument limit, for the envelope."""
    header_bytes: int = HEADER_BYTES
    head_s: float = 5.0
    """Time limit for a request head, which fits into a few packets (slowloris)."""
    heads: int = 64
    """Maximum number of connections with an incomplete head; the oldest is closed first."""
    send_s: float = 20.0
    """Time limit for a request body."""
    idle_s: float = 75.0
    """Keep-alive: longer than load balancers keep a connection. Else one may send a request on it just when
    it is closed, and the request fails."""
    read_s: float = 120.0
    """Time that a client may stop reading a response; the kernel buffers some MB."""
    connections: int = 2048
    in_flight: int = 1024
    token_in_flight: int = 256
    requests_per_second: float = 0.0
    """Per token."""
    burst: float = 1000.0
    drain_s: float = 0.0
    """How long a server goes on serving at shutdown, so that load balancers notice that it is not ready."""
    grace_s: float = 20.0
    """Grace period of calls at shutdown."""


DEFAULT_SERVER_LIMITS: Final = ServerLimits()
DRAIN_SECONDS: Final = 5.0
"""`drain_s` of servers that share a database: two checks of a load balancer that checks every 2 s."""

# --- the page (WEB-2) ----------------------------------------------------------------------------

SIGN_IN_SECONDS: Final = 300.0
"""Lifetime of a sign-in link: from a terminal to a browser."""
SIGN_IN_CODES: Final = 32
"""Maximum number of live sign-in links."""
SESSION_HOURS: Final = 12.0
"""Lifetime of a page session: a working day."""
FRESH_SIGN_IN_SECONDS: Final = 300.0
"""Age of a sign-in up to which the page puts things in force: whoever finds a browser open later cannot."""
LISTENERS: Final = 128
CALLER_LISTENERS: Final = 16
"""Maximum number of listening tabs, in all and per token; one more is told to retry later."""
LISTEN_SECONDS: Final = 1.0
"""Poll interval for changes while a tab listens: other processes of a keep send no events."""
FORM_FIELDS: Final = 2_000
"""Maximum number of fields of one form."""
SHOWN_CHARS: Final = 200_000
"""Characters of one value shown on a page; more would block the browser for seconds."""
STATISTICS_SECONDS: Final = 7 * 86_400.0
"""Time range of the charts."""
STATISTICS_RECORDS: Final = 200_000
"""Maximum number of records read for the charts: some seconds, once."""
COUNTED_AT_ONCE: Final = 5_000
"""Records that a server reads before its first figures: a quarter of a second. A thread counts the others."""
