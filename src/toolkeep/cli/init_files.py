"""The files that `toolkeep init` writes: configuration, policies and examples, with comments."""

from typing import Final

CONFIG: Final = """\
# yaml-language-server: $schema=config.schema.json
#
# Configuration of toolkeep for this project; the same keys in ~/.agent/config.yml are for all of yours.
# Values may use ${NAME} and ${NAME:-default} from the environment.
# A file that runs, grants or loosens something counts once you have accepted it: toolkeep accept

# Who may call what, in Cedar; files beside this one. Without this, what agents hold decides alone.
# After every change: toolkeep policy check, then toolkeep accept
policies: [policies/main.cedar]

# What each agent holds: what it may touch, and the permissions that tools require.
# Without it `local` (your own code) and `operator` (you, at the command line) may read this folder;
# `inherit: defaults` keeps that, and adds to it.
# agents:
#   operator: {inherit: defaults, capabilities: ['fs.write:.'], permissions: [tool.filesystem.write]}
#   writer:
#     description: Writes the documentation
#     capabilities: ['fs.read:.', 'fs.write:./docs', 'net.read:docs.example.org']
#     permissions: [tool.filesystem.read, tool.filesystem.write, tool.network.fetch]

# Servers whose tools are imported; `toolkeep add openapi FILE` writes this.
# upstreams:
#   shop:
#     openapi: shop.openapi.json
#     url: https://api.example.org/v1
#     secrets: {key: {env: SHOP_KEY}}

# When people are asked. Calls of medium danger and above always are.
# approvals:
#   # Seconds that a call waits for an answer; 0 refuses it at once.
#   wait: 300
#   # Whether calls of low danger need approval too.
#   paranoid: true

# How much this keep offers: core, writer_pro, teams, or all of it with enterprise. No licence is checked.
# tier: enterprise

# tool_registry:
#   # Whether errors may show the values that they are about.
#   include_actual_values: true
#
#   # At which level refused calls are logged: debug, info, warning or error.
#   validation_failure_log_level: warning
#
#   # Tools of your own.
#   custom_tools:
#     - name: custom_greeting
#       version: '1.0.0'
#       description: Generates a personalized greeting message
#       parameters:
#         type: object
#         properties:
#           name:
#             type: string
#             description: Name of the person to greet
#             maxLength: 100
#         required: [name]
#       run:
#         command: [./bin/greet]
#
#   # Providers of other packages that may bring tools.
#   providers: [my_provider]

# Tools that never answer: name for all versions, or name@version.
# disabled_tools: [agent_hello_world]
"""

POLICIES: Final = """\
// Who may call what, in Cedar (https://docs.cedarpolicy.com).
//
// A call is allowed if a permit holds, no forbid holds, and every policy can be evaluated. Beside that an
// agent must hold what the call would touch (agents: in config.yml); no policy gives it more.
//
//   principal  the agent: Agent::"writer". It has permissions and capabilities, both sets of text.
//   action     Action::"call", or Action::"see": whether an agent may know that a tool exists.
//   resource   the tool: Tool::"read_file". It is in its category, Category::"file_system", and in its
//              source, Source::"hand", "mcp", "openapi" or "import". It has danger (0 safe, 1 low, 2 medium,
//              3 high, 4 critical), category, source, effects, requires (permissions), capabilities,
//              isolation, is_built_in, kind (tool, prompt or resource) and version.
//   context    of a call: arguments, by name, canonical where they name a file or a host, a command as it
//              was written; roots (the grants of files that it needs), hosts, programs (their real paths) and
//              databases, sets of text; mail_domains and url_hosts, of all addresses in the arguments;
//              session and conversation.
//
// Every policy has an @id, by which decisions are recorded. @reason is told to the agent; with @ask a person
// is asked before the call is made, unless a policy with @silent permits it too. Calls to be allowed and
// denied stand in main.examples.yml.
// Check all of it: toolkeep policy check. Why a call is denied: toolkeep policy explain NAME ARGUMENTS

@id("everyone-calls")
permit (principal, action == Action::"call", resource);

// Keep one agent from one tool. Tools and agents that are named must exist.
// @id("no-shell-for-writer")
// @reason("the writer has no use for a shell")
// forbid (principal == Agent::"writer", action == Action::"call", resource == Tool::"run_command");

// Keep every call from other hosts than these.
// @id("known-hosts-only")
// @reason("only hosts of ours may be talked to")
// forbid (principal, action == Action::"call", resource)
// unless { ["docs.example.org", "api.example.org"].containsAll(context.hosts) };

// Ask a person before anything is written to a file.
// @id("ask-before-writes")
// @ask
// permit (principal, action == Action::"call", resource)
// when { resource.effects.containsAny(["FsWrite", "Unknown"]) };

// Do not even let an agent know of a tool.
// @id("hidden-from-writer")
// forbid (principal == Agent::"writer", action == Action::"see", resource in Category::"database");
"""

EXAMPLES: Final = """\
# Calls that main.cedar should allow or deny. While one is decided otherwise, no call at all is permitted;
# `toolkeep policy check` says which. `agent` is local unless it is said.
# `allow` and `deny` are true, or the id of the policy that should decide.

- tool: agent_hello_world
  arguments: {name: Ada}
  allow: everyone-calls

# - agent: writer
#   tool: run_command
#   arguments: {command: ls}
#   deny: no-shell-for-writer
"""
