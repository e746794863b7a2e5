"""Every number that bounds something, each with its reason.

`Limits` holds those that a keep may set; the constants below are part of what toolkeep is.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- definitions (DEF) -------------------------------------------------------------------------

NAME_CHARS: Final = 64
"""The longest tool name; the shortest limit among the model providers."""

DESCRIPTION_CHARS: Final = 1024
"""The longest description; the width of the column that stores it."""

VERSION_CHARS: Final = 32
"""The longest version; the width of the column that stores it."""

ALIASES: Final = 100
"""Further names of one tool."""

VERSIONS: Final = 100
"""Versions of one tool that stand side by side."""

CUSTOM_TOOLS: Final = 10_000
"""Custom tools in one configuration file."""

STORED_JSON_BYTES: Final = 4096
"""Constraints and permissions as JSON; the width of their columns."""

EXECUTION_SECONDS: Final = (1.0, 600.0)
"""max_execution_time: below a second nothing useful runs, above ten minutes it is a job."""

OUTPUT_BYTES: Final = (KIB, 100 * MIB)
"""max_output_size."""

DEFAULT_EXECUTION_SECONDS: Final = 60.0
DEFAULT_OUTPUT_BYTES: Final = 10 * MIB
DEFAULT_MEMORY_BYTES: Final = 512 * MIB
RESTRICTED_MEMORY_BYTES: Final = 64 * MIB

SLOW_COMPILATION_MS: Final = 10.0
"""A definition that takes longer to check and compile is worth a warning (VAL-11)."""

DEFINITION_FILE_BYTES: Final = 16 * MIB
"""A file of definitions; ten thousand ordinary tools fit."""

DEFINITION_FILE_NODES: Final = 2_000_000
"""JSON values in a file of definitions, after YAML aliases are written out: no alias bomb."""

DOCUMENT_DEPTH: Final = 100
"""How deep lists and objects may be nested in a file."""

INTEGER_DIGITS: Final = 4300
"""The longest integer; Python itself turns no longer one into text."""

CONFIG_FILE_BYTES: Final = 4 * MIB
"""A configuration file; thousands of tools fit, and a hostile one is refused within seconds."""

# --- schemas (VAL-7) ---------------------------------------------------------------------------

SCHEMA_NODES: Final = 2_000
"""Subschemas after references are resolved and objects closed. Real tools need at most 335."""

FANOUT: Final = 256
"""Subschema evaluations that one JSON value of a call may receive. Real tools need at most 13."""

PATTERNS: Final = 64
"""Regular expressions in one schema; each is compiled at registration."""

PATTERN_BYTES: Final = 64 * KIB
"""Compiled size of one regular expression. The engine is linear in text × size."""

PATTERN_CACHE_BYTES: Final = 256 * KIB
"""The engine's cache of states for one regular expression."""

MATCHED_CHARS: Final = 8192
"""The longest string that a pattern or a format is tried on."""

# --- arguments (VAL-7) -------------------------------------------------------------------------

WORK: Final = 300_000
"""Steps one call may cost: values × fan-out, and characters × pattern size. The slowest step seen
takes 150 ns, so that no admitted call passes 100 ms."""

FILLING_STEPS: Final = 100_000
"""Values of defaults, and defaults inside them, that are looked at when a schema is registered: 50 ms."""

BRACKETS: Final = 100_000
"""Objects and arrays in one call; parsing more costs the host time before anything is checked."""

REPORT_WORK: Final = 4_000
"""Errors of one call that are collected at the most (some 10 µs each); a larger call is searched
part by part, with what is left."""

FIRST_ERROR_WORK: Final = 50_000
"""Values × fan-out of one call for which the engine is asked for its first error; it copies the value into it
(0.3 µs a value). Beyond, the place alone is named."""

REPORT_DIGITS: Final = 50_000
"""Digits of integers beyond 64 bits, times fan-out, up to which errors about them are collected; the
engine writes each out for each error, at 0.4 µs a digit."""

DEFERRED_BYTES: Final = 64 * KIB
"""Bytes of a refused call, times the errors that one value can have, up to which words and repair are made
when they are read. Until then a refusal holds on to the arguments, and callers may keep many refusals."""

ERRORS: Final = 50
"""Violations in one refusal (VAL-5)."""

ECHOED_CHARS: Final = 80
"""How much of a value, a name or a pattern is shown in an error."""

LISTED_NAMES: Final = 20
"""Allowed names or values listed in one error, and tools offered for an unknown name (VAL-8)."""

MODEL_TEXT_CHARS: Final = 1200
"""The text form of a refusal that a model reads."""

HINT_CHARS: Final = 2000
"""The one-line signature in a refusal."""

LOGGED_CHARS: Final = 1000
"""Arguments in a debug log (VAL-6)."""

# --- search (REG-6) ----------------------------------------------------------------------------

QUERY_CHARS: Final = 4_000
"""How much of a query is read; a longer one is a document."""

QUERY_WORDS: Final = 64
"""Words of a query that count, the rarest ones."""

QUERY_WORK: Final = 8_000
"""Scores that one query may add up, 0.2 µs each; the words that stand in most tools are left out first."""

INDEXED_CHARS: Final = 20_000
"""How much of a description, or of all parameters, is indexed. Real tools have at most 14,145."""

INDEXED_PARAMETER_TEXTS: Final = 500
"""Names and descriptions of parameters that are indexed, outer ones first. Real tools have at most 151."""

WORD_CHARS: Final = 64
"""A longer word is cut into several; no name is longer."""

# --- refusals (VAL-7) --------------------------------------------------------------------------

REMEMBERED_REFUSALS: Final = 1000
"""Refused calls remembered, so that a repeated one can be called that."""

REFUSALS_IN_A_ROW: Final = 20
"""Refusals of one tool to one agent before details are withheld."""

QUIET_SECONDS: Final = 30.0
"""How long details are withheld after the last of too many refusals."""

# --- providers (PRV) ---------------------------------------------------------------------------

INLINED_SCHEMAS: Final = 5_000
"""Parts of one schema after references were written out: no small schema that grows without end."""

STRICT_PROPERTIES: Final = 5_000
STRICT_DEPTH: Final = 10
STRICT_TEXT_CHARS: Final = 120_000
STRICT_ENUM_VALUES: Final = 1_000
"""What OpenAI takes in one strict schema: properties, levels, characters of names and values, enum values."""

STRICT_CHOICE_BYTES: Final = 64 * KIB
"""Arguments of a strict call with alternatives: each level of them is compared as a whole."""

LONG_ENUM: Final = (250, 15_000)
"""A text enum of more values than the first may have no more characters than the second."""

CLAUDE_STRICT_TOOLS: Final = 20
CLAUDE_OPTIONAL_PARAMETERS: Final = 24
CLAUDE_UNION_PARAMETERS: Final = 16
"""What Claude takes of strict tools in one request."""

COHERE_STRICT_FIELDS: Final = 200
"""Parameters of all tools together that Cohere's strict_tools takes."""

RESULT_CHARS: Final = 100_000
"""How much of a result's text goes to a model; the rest is read by reference. About 25,000 tokens."""

RESULT_BLOB_BYTES: Final = 5 * MIB
"""The largest image or file that goes to a model; vendors take at most 5 MB for an image."""

RESPONSE_BYTES: Final = 32 * MIB
"""A model's response as text."""

STREAM_CALLS: Final = 1_000
"""Calls of one response that are made."""

STREAM_CALLS_MOST: Final = 10_000
"""Calls that one stream may begin: beyond `STREAM_CALLS` they are only answered."""


# --- network (SBX-4) ---------------------------------------------------------------------------

RESOLVE_SECONDS: Final = 10.0
"""How long a name may take to resolve; the system's own resolver gives up after 5 to 30 s."""

RESOLUTIONS_AT_ONCE: Final = 32
"""Names that are being resolved; each holds a thread, which nothing can stop."""

RESOLVED_ADDRESSES: Final = 64
"""Addresses of one name. Each is vetted; a name with more is no ordinary one."""

DIALED_ADDRESSES: Final = 6
"""Addresses of one name that are tried."""

DIAL_SECONDS: Final = 10.0
"""How long it may take to reach a host, over all of its addresses, and to agree on TLS with it."""

DIAL_NEXT_SECONDS: Final = 0.25
"""After how long the next address is tried beside the one before (RFC 8305 section 5)."""

NETWORK_REQUESTS: Final = 100
"""Requests of one call where its tool states no `max_network`."""

NETWORK_BYTES: Final = 32 * MIB
"""Bytes of one call, both ways together, where its tool states no `max_network`."""

NETWORK_CONNECTIONS: Final = 16
"""Connections of one worker at once; browsers open six to a host."""

NETWORK_IDLE_SECONDS: Final = 30.0
"""How long nothing may move on a connection."""

NETWORK_CONTACTS: Final = 1_000
"""Contacts of one call that are remembered."""

RETRY_SECONDS: Final = 0.25
"""Before a server that was not there is asked again; doubled each time."""

HEAD_BYTES: Final = 32 * KIB
"""The head of a request or an answer: twice what most servers take."""

ANSWER_PIECES: Final = 250_000
"""Pieces that an answer may come in: each costs its host some 15 µs, also one of a single byte."""

HEAD_SECONDS: Final = 10.0
"""How long a worker may take to say a whole head, or a whole ClientHello."""

CLIENT_HELLO_BYTES: Final = 16 * KIB
"""A ClientHello; with post-quantum keys real ones have 2 KB."""

UPLOAD_BYTES: Final = 16 * MIB
"""A file that a call sends; the size of arguments, a megabyte unless configured, mostly ends it before."""

REDIRECTS: Final = 5
"""Redirects that a request follows."""

# --- calls (EXE) -------------------------------------------------------------------------------

OUTPUT_CAP_BYTES: Final = OUTPUT_BYTES[1]
"""Output that is hashed and kept whole; a tool that gives more has failed."""

OUTPUT_VALUES: Final = 1_000_000
"""JSON values in one output; to read so many takes a tenth of a second from a worker, half a second in this
process. What a value shares counts each time: twenty levels that hold the next one twice are a million."""

OUTPUT_WORK: Final = 20_000_000
"""Steps that checking one output against its schema may cost, `WORK` of them at once: a million values of
twenty steps. The engine holds the interpreter: 5,000 integers beyond 64 bits under `uniqueItems` took 35 s
without it."""

OUTPUT_ESCAPES: Final = 5_000_000
"""Backslashes in one answer as JSON: the parser takes some 20 ns for each, and holds the interpreter. A text
of a hundred megabytes has as many lines at 20 characters each."""

LARGE_ANSWER_BYTES: Final = 256 * KIB
"""An answer longer than this is parsed by a thread: a shorter one takes less than 5 ms."""

LARGE_OUTPUT: Final = 10_000
"""Values, or hundreds of characters, of an output that a thread reads, checks and hashes: some 10 ms."""

OUTPUT_DEPTH: Final = 150
"""Nesting of an output; the parser that copies it stops at 200."""

APPROVAL_WAIT_SECONDS: Final = 300.0
"""How long a call waits for the approver of its host; people go for coffee, callers give up."""

APPROVAL_POLL_SECONDS: Final = 0.2
"""How often a waiting call looks whether another process answered."""

APPROVALS_WAITING: Final = 100
"""Calls of one agent that wait for a person at the same time; nobody looks at more of them."""

APPROVALS_BYTES: Final = 8 * MIB
"""What they hold together; one alone may be of any size. As much is kept of those that are over."""

SESSION_SECONDS: Final = 86_400.0
"""How long a yes for a session holds at most: a day."""

DIFFERENCE_BYTES: Final = 1 << 20
"""The longest file whose difference is shown to an approver."""

DIFFERENCE_LINES: Final = 400
"""What of a difference is shown; who needs more looks at the arguments, which are whole."""

DIFFERENCE_STEPS: Final = 1_000_000
"""Lines that are compared to find a difference: a MiB of short ones would take half an hour."""

VIEW_CHARS: Final = 20_000
"""What of each part of a question a terminal shows, four screens or so; the number left out is said."""

RULE_DAYS: Final = 365
"""The longest that an "always" holds; people and tools change."""

TOUCHED: Final = 100
"""Things that one call may name: each is looked at before the call, which takes some 60 µs for a path."""

HELD_PLACES: Final = 400
"""Files and folders that the calls of one agent hold open together, also while they wait for a person: each
is a descriptor of the host's process, which often has 1,024 in all."""

PROTECTED_ENTRIES: Final = 200_000
"""Names that are looked through below a folder before a worker may write it: a quarter of a second, once."""

BODIES_WAITING: Final = 10_000
"""Bodies that wait to be written; beyond, one is not kept rather than a call held up."""

BODIES_WAITING_BYTES: Final = 64 * 1024 * 1024
"""The same in bytes: results may have megabytes each."""

BODIES_LINGER_SECONDS: Final = 0.02
"""How long the first body waits for others: one transaction for many takes a tenth of the time."""

PROGRESS_FRAMES: Final = 1_000
"""How often the worker of one call may tell progress. Our own code in it tells less; more is an attack."""

PROGRESS_BYTES: Final = 2 * KIB
"""One of these as JSON: two numbers and 200 characters, all of them escaped."""

OUTPUT_PIECES: Final = 10_000
"""Pieces of one output that are handed on as they come; the others only come with the whole."""

OUTPUT_PIECES_MOST: Final = 1_000_000
"""Pieces that one output may have: each takes memory beside its own bytes."""

PROGRESS_AT_ONCE: Final = 32
"""After so many the event loop turns to others; a flood must not hold up other calls."""

RESIDENTS: Final = 32
"""Programs that stay between calls, in one event loop; each holds memory for as long as it does."""

RESIDENT_IDLE_SECONDS: Final = (1.0, 86_400.0)
"""How long a program that stays may go without a call: between a second and a day."""

DEFAULT_RESIDENT_IDLE_SECONDS: Final = 300.0

CANCEL_GRACE_SECONDS: Final = 1.0
"""How long a cancelled async tool may take to clean up before it is answered for."""

CLOSE_GRACE_SECONDS: Final = 10.0
"""How long a keep that is closed waits for what it cancelled; a tool that does not end is left behind."""

CACHED_RESULTS: Final = 1000
CACHED_BYTES: Final = 32 * MIB
"""Results of pure calls that are kept."""

BODY_ARGUMENT_BYTES: Final = 64 * KIB
"""Arguments up to this size are kept beside the log (AUD-5)."""

NAMED_CHARS: Final = 256
"""Names and ids in a call: tool, agent, conversation, session, correlation."""

PENDING_CALLS: Final = 10_000
"""Calls that wait for a client's result."""

PENDING_BYTES: Final = 64 * MIB
"""The arguments that they hold together."""

BATCH_CALLS: Final = 1000
"""Calls in one batch."""


# --- WASM (SBX-3) ------------------------------------------------------------------------------

MODULE_BYTES: Final = 64 * MIB
"""A WASM module; an interpreter with its library has about half of it."""

COMPILED_BYTES: Final = 512 * MIB
"""A compiled module that is kept in a file; machine code has several times the size of its module."""

CACHED_MODULES: Final = 64
"""Compiled modules that are kept, in memory and in files; a keep has about as many tools as fit a prompt."""

FUEL_PER_SECOND: Final = 10_000_000_000
"""Fuel for a second of one core, an instruction each; the fastest core seen burns 7,500,000,000, so that a
call's deadline comes first, unless its definition grants less than a core."""

TABLE_ELEMENTS: Final = 1_000_000
TABLES: Final = 16
"""Tables of one instance, eight bytes an element; a large interpreter has 20,000 in one table."""

COPIED_BYTES: Final = 64 * MIB
"""A single file that a WASM module reads: it gets a copy, because only folders can be opened for it."""

MODULE_FILES: Final = 256
"""Files that a WASM module holds open at once, as many as a worker; they are files of the host's process."""

STDERR_BYTES: Final = 16 * KIB
"""The end of what a WASM module writes to standard error; the rest is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """How many calls at once, and how fast; zero calls a second means any number."""

    agent_concurrency: int = 256
    tool_concurrency: int = 64
    queue: int = 1024
    calls_per_second: float = 0.0
    burst: float = 100.0
    failures_in_a_row: int = 5
    suspended_s: float = 30.0


DEFAULT_CALL_LIMITS: Final = CallLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits that a keep may set; the defaults are SPEC's (VAL-7)."""

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
"""The longest id of a request; clients count, or draw a UUID."""

MCP_VALUES: Final = 100_000
"""Values of one message, its arguments aside, counted before it is read: 4 MiB of `[],` took a second."""

MCP_INTRODUCTION_BYTES: Final = 64 * KIB
"""What a client may say of itself in a handshake; it is kept as long as the session."""

MCP_URI_CHARS: Final = 2_048
"""The longest URI that is watched."""

MCP_CLIENT_CHARS: Final = 200
"""What of a client's name for itself is recorded."""

MCP_ASKED: Final = 64
"""Questions to one client that wait for its answer."""

MCP_PARKED: Final = 256
"""Calls that wait for a client to come back with answers; each holds its slots."""

MCP_AGENT_PARKED: Final = 64
"""The same of one agent, so that it keeps nobody else's from waiting."""

MCP_PARKED_SECONDS: Final = 300
"""How long; people go for coffee."""

MCP_TASKS: Final = 10_000
"""Tasks of one server that can be asked about; beyond, calls are answered when they end."""

MCP_AGENT_TASKS: Final = 1_000
"""The same of one agent; its oldest that have ended give way."""

MCP_AGENT_TASK_BYTES: Final = 64 * MIB
"""What the tasks of one agent keep of their results together; the oldest give way, the newest is kept."""

MCP_TASK_SECONDS: Final = 3_600
"""How long a task can be asked about: an hour, and its call is in the log."""

MCP_TASK_POLL_MS: Final = 500
"""How often a client should ask."""

MCP_TASK_AFTER_SECONDS: Final = 5.0
"""When a call becomes a task, where the client knows them: people look up after that long."""

MCP_PAGE: Final = 2_000
"""Tools in one page of a list. Many clients read the first page only."""

MCP_CACHE_MS: Final = 60_000
"""How long a client may keep a list; whoever subscribes hears of changes at once."""

MCP_STREAM_MESSAGES: Final = 1_000
"""Messages that wait for a client to read them; beyond, notifications are left out."""

MCP_UNREAD_BYTES: Final = MIB
"""The same in bytes; over stdio, nothing more is taken from such a client."""

MCP_SESSION_SECONDS: Final = 3_600
"""How long a session over HTTP may be silent."""

MCP_SESSIONS: Final = 1_000
"""Sessions over HTTP; beyond, the one that was silent longest of the agent that has most of them ends."""

MCP_BATCH: Final = 100
"""Messages in one batch (2025-03-26); each request of it counts as one in flight."""

MCP_BATCH_COMMAS: Final = 100_000
"""Commas in one batch, counted before it is read: so many values at most are made of it."""

MCP_RESUME_SECONDS: Final = 60
"""How long a client whose stream broke may take to come back; its call goes on until then."""

MCP_KEPT_EVENTS: Final = 256
"""Events of one session that are kept for a client that comes back."""

MCP_KEPT_BYTES: Final = 256 * KIB
"""The same in bytes; a larger event cannot be had again."""

MCP_SHELF_BYTES: Final = 64 * MIB
"""What all sessions keep together."""

FOUND_TOOLS: Final = 20
"""Definitions in one answer of `find_tools`."""


class McpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one MCP server takes; zero messages a second means any number."""

    message_bytes: int = 4 * MIB
    """A call's arguments have a MiB; a client may send as much again in answers and metadata."""
    in_flight: int = 1024
    messages_per_second: float = 0.0
    burst: float = 1000.0
    grace_s: float = 60.0
    """How long calls may still run after their client has sent its last message."""
    watched: int = 1000
    """Resources that one connection watches."""


DEFAULT_MCP_LIMITS: Final = McpLimits()

TOKENS: Final = 10_000
"""Tokens of one keep that count at a time; more are a loop that makes them."""
TOKEN_DAYS: Final = 90.0
"""How long a token counts where nobody says otherwise: one that is forgotten ends by itself."""
TOKEN_CHARS: Final = 128
"""Of what a bearer shows; ours have 63. What is longer is no token, and is not looked at."""
TOKEN_USE_SECONDS: Final = 60.0
"""How exactly the last use of a token is known: a write for each request would cost more than the request."""

STORE_CONNECT_SECONDS: Final = 5
"""For a connection to the store's database: whoever opens a keep waits for it."""
STORE_BUSY_SECONDS: Final = 10.0
"""For another process that changes the embedded store at this moment."""
FOLLOW_SECONDS: Final = 5.0
"""How often a shared store is looked at even if it tells nothing: a proxy may swallow what it tells."""
FOLLOW_FILE_SECONDS: Final = 0.5
"""How often the embedded store is looked at for changes of other processes; a look takes 10 µs."""
FOLLOW_PAUSE_SECONDS: Final = 0.05
"""Between two looks at a shared store: whoever may connect to the database may also tell a thousand times."""
CODE_FILES: Final = 2_000
"""Of a project's code that its configuration names: each is hashed whenever the configuration is read."""
CODE_SOURCE_BYTES: Final = 32 << 20
"""Of Python sources that are parsed for their imports; a second for each ten megabytes."""
CHANGER_CHARS: Final = 128
"""Of the name of whoever changes a definition."""
RECONNECT_SECONDS: Final = 5.0
"""The longest pause before a store that is lost is tried again."""
STORED_DEFINITION_BYTES: Final = 256 * KIB
"""A stored definition as JSON, metadata and all: two schemas at their limit, and as much again."""
STORE_CONNECTIONS: Final = 5
"""To PostgreSQL from one keep: definitions change rarely, and reading needs none."""

WEBHOOK_QUEUE: Final = 1_000
"""Events that wait for a webhook: half a megabyte. More is lost rather than held in memory."""
WEBHOOK_SECONDS: Final = 10.0
"""For one delivery, from the name to the last byte of the answer."""
WEBHOOK_PAUSES: Final = (1.0, 5.0, 30.0, 120.0, 600.0)
"""Before each further attempt; after the last an event is given up, some 13 minutes after it happened."""
WEBHOOK_ANSWER_BYTES: Final = 64 * KIB
"""Of an answer, head and all; nothing in it is read but its status."""
WEBHOOK_CLOSE_SECONDS: Final = 5.0
"""For what waits when a keep is closed."""
WEBHOOK_SECRET_CHARS: Final = 24
"""The shortest secret that signs: what is shorter can be guessed."""

# --- HTTP (WEB-1) ------------------------------------------------------------------------------

PAGE: Final = 100
PAGE_MOST: Final = 1_000
"""Things in one page of a list: by default, and at most."""

OPEN_CALLS: Final = 10_000
"""Calls that were answered with 202 and can be asked about."""

OPEN_CALL_SECONDS: Final = 3_600
"""How long after their end; then the log has them."""

POLL_SECONDS: Final = 60
"""The longest that one question about such a call may wait for its end."""

SCANNED_RECORDS: Final = 5_000
"""Records that one page of the log looks at; a page with few that fit is short, and goes on."""

HEADER_BYTES: Final = 32 * KIB
"""A request line and all headers; browsers with many cookies send eight."""

WAIT_FOR_PERSON_SECONDS: Final = 900.0
"""How long a call over HTTP waits for a person unless it is configured: people are at lunch."""


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one HTTP server takes; zero requests a second means any number."""

    body_bytes: int = 2 * MIB
    """A call's arguments have a MiB; as much again for what stands around them."""
    header_bytes: int = HEADER_BYTES
    head_s: float = 5.0
    """How long a client may take to send the head of a request, which fits into a few packets."""
    heads: int = 64
    """Connections whose request has no whole head yet; the one that has been so longest gives way."""
    send_s: float = 20.0
    """How long a client may take to send the body of a request."""
    read_s: float = 120.0
    """How long a client may read nothing while something waits for it; the kernel takes some MB ahead."""
    connections: int = 2048
    in_flight: int = 1024
    token_in_flight: int = 256
    requests_per_second: float = 0.0
    """For each token."""
    burst: float = 1000.0
    grace_s: float = 20.0
    """How long calls may still run after the server was told to end."""


DEFAULT_SERVER_LIMITS: Final = ServerLimits()

# --- the page (WEB-2) ----------------------------------------------------------------------------

SIGN_IN_SECONDS: Final = 300.0
"""How long a sign-in link counts: from a terminal to a browser."""
SIGN_IN_CODES: Final = 32
"""Links that count at once."""
SESSION_HOURS: Final = 12.0
"""How long a person is signed in: a working day."""
SESSIONS: Final = 64
SESSION_TABS: Final = 64
"""Sessions, and tabs of one; the oldest gives way, of sessions that of the token that has most."""
LISTENERS: Final = 128
CALLER_LISTENERS: Final = 16
"""Tabs that hear of what happens, all and of one token; one more is told to ask again later."""
LISTEN_SECONDS: Final = 1.0
"""How often somebody looks what waits, while a tab listens: other processes of a keep tell nobody."""
FORM_FIELDS: Final = 2_000
"""Fields of one form."""
SHOWN_CHARS: Final = 200_000
"""Of one value on a page; the browser would be busy for seconds with more."""
STATISTICS_SECONDS: Final = 7 * 86_400.0
"""How far back the charts go."""
STATISTICS_RECORDS: Final = 200_000
"""Records that are read for them at most: some seconds, once."""
