"""Bad configuration files: what is written, the line and column that the error names, and a telling word."""

from typing import NamedTuple

from toolkeep.limits import CONFIG_FILE_BYTES


class Bad(NamedTuple):
    """A file that must stop the start."""

    name: str
    text: str | bytes
    place: str
    word: str


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 9)
)

UNREADABLE = (
    Bad("duplicate_key", "tier: core\ntier: teams\n", "2:1", "the key tier is written twice"),
    Bad("duplicate_key_inside", "tool_registry:\n  max_work: 1\n  max_work: 2\n", "3:3", "max_work is written twice"),
    Bad("duplicate_agent", "agents:\n  ada: {}\n  'ada': {}\n", "3:3", "ada is written twice"),
    Bad("alias_bomb", BOMB, "7:10", "2000000 values, aliases written out"),
    Bad("recursive_alias", "agents: &a\n  ada: *a\n", "2:8", "inside its own value"),
    Bad("unknown_alias", "tier: *nowhere\n", "1:7", "the anchor &nowhere"),
    Bad("anchor_twice", "permissions: [&a x, &a y]\n", "1:21", "&a is written twice"),
    Bad("tab", "tool_registry:\n\tmax_work: 1\n", "2:1", "not with tabs"),
    Bad("binary", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "1:1", "0x89 is not UTF-8"),
    Bad("nul", b"tier: co\0re\n", "1:9", "U+0000"),
    Bad("escape_character", b"tier: core # \x1b[2J\n", "1:14", "U+001B"),
    Bad("utf_16", "tier: core\n".encode("utf-16"), "1:1", "UTF-16"),
    Bad("utf_16_without_mark", "tier: core\n".encode("utf-16-le"), "1:1", "UTF-16"),
    Bad("utf_32", "tier: core\n".encode("utf-32"), "1:1", "UTF-32"),
    Bad("latin_1", "tier: core\n# Größe\n".encode("latin-1"), "2:5", "0xF6 is not UTF-8"),
    Bad("overlong_utf_8", b"tier: \xc0\xaf\n", "1:7", "0xC0 is not UTF-8"),
    Bad("too_deep", "[" * 200 + "]" * 200, "1:101", "deeper than 100"),
    Bad("too_deep_through_aliases", f"- &a {'[' * 60}{']' * 60}\n- {'[' * 60}*a{']' * 60}\n", "2:63", "deeper than 100"),
    Bad("two_documents", "tier: core\n---\ntier: teams\n", "2:1", "a second document"),
    Bad("directive", "%YAML 1.1\n---\ntier: core\n", "1:1", "lines that start with %"),
    Bad("python_call", "tier: !!python/object/apply:os.system [id]\n", "1:7", "!!python/object/apply:os.system"),
    Bad("python_name", "tier: !!python/name:os.system\n", "1:7", "!!python/name:os.system"),
    Bad("local_tag", "tier: !secret core\n", "1:7", "the tag !secret"),
    Bad("tag_on_object", "agents: !!set {ada}\n", "1:9", "the tag !!set"),
    Bad("tag_that_does_not_fit", "tier: !!int core\n", "1:7", "the tag !!int"),
    Bad("merge_key", "agents:\n  a: &a {}\n  b:\n    <<: *a\n", "4:5", "merge keys (<<)"),
    Bad("number_as_key", "1: x\n", "1:1", "the key 1 is not text"),
    Bad("boolean_as_key", "agents:\n  true: {}\n", "2:3", "the key true is not text"),
    Bad("null_as_key", "~: x\n", "1:1", "the key ~ is not text"),
    Bad("list_as_key", "[a]: x\n", "1:1", "cannot be a key"),
    Bad("infinite", "tool_registry:\n  max_work: .inf\n", "2:13", ".inf is not a number"),
    Bad("not_a_number", "tool_registry:\n  max_work: .nan\n", "2:13", ".nan is not a number"),
    Bad("endless_integer", f"tool_registry:\n  max_work: {'9' * 5000}\n", "2:13", "more than 4300 digits"),
    Bad("open_bracket", "disabled_tools: [a\n", "2:1", "line 1, column 17"),
    Bad("open_quote", 'tier: "core\n', "2:1", "line 1, column 7"),
    Bad("unknown_escape", 'tier: "\\q"\n', "1:8", "unknown escape"),
    Bad("half_a_character", 'tier: "\\ud800"\n', "1:10", "escape"),
    Bad("colon_in_text", "tier: core: teams\n", "1:11", "in quotes"),
    Bad("broken_indentation", "tool_registry:\n  max_work: 1\n max_errors: 2\n", "3:2", "indentation"),
)  # fmt: skip

INVALID = (
    # --- the root
    Bad("list_at_the_root", "- tier\n- core\n", "1:1", "the file must be an object, got array"),
    Bad("text_at_the_root", "tier\n", "1:1", "the file must be an object, got string"),
    Bad("number_at_the_root", "\n5\n", "2:1", "the file must be an object, got integer"),
    Bad("unknown_key", "tool_registy: {}\n", "1:1", "Did you mean 'tool_registry'?"),
    Bad("unknown_key_far_from_all", "tier: core\nzzzz: 1\n", "2:1", "Unknown property 'zzzz'"),
    Bad("empty_key", '"": 1\n', "1:1", "Unknown property ''"),
    Bad("long_unknown_key", f"tier: core\n{'k' * 100}: 1\n", "2:1", "Unknown property 'kkkk"),
    Bad("deceiving_unknown_key", 'tier: core\n"t\\u202eier": 1\n', "2:1", "Unknown property 't\\u202eier'"),
    # --- tier and features
    Bad("unknown_tier", "tier: gold\n", "1:1", '"writer_pro"'),
    Bad("number_as_tier", "tier: 2\n", "1:1", "'tier' is not an allowed value"),
    Bad("webhook_in_the_clear", "audit:\n  checkpoint_webhook: http://example.org/\n", "2:3", "; expected text matching ^(https://"),
    Bad("webhook_to_a_file", "audit:\n  checkpoint_webhook: file:///etc/passwd\n", "2:3", "; expected text matching ^(https://"),
    Bad("witness_in_the_clear", "audit:\n  witnesses: [{url: 'http://w.org/', key: a}]\n", "2:16", "; expected text matching ^(https://"),
    Bad("null_as_tier", "tier:\n", "1:1", "'tier' is not an allowed value"),
    Bad("list_as_features", "features: []\n", "1:1", "'features' must be an object, got array"),
    Bad("unknown_feature", "features:\n  tool: {}\n", "2:3", "Did you mean 'tools'?"),
    Bad("boolean_as_feature", "features:\n  tools: true\n", "2:3", "'tools' must be an object, got boolean"),
    Bad("unknown_key_of_feature", "features:\n  tools:\n    definitions: true\n", "3:5", "Did you mean 'definition'?"),
    Bad("text_as_definition", 'features:\n  tools:\n    definition: "no"\n', "3:5", "must be a boolean, got string"),
    Bad("yaml_1_1_no", "features:\n  tools:\n    definition: no\n", "3:5", "must be a boolean, got string"),
    # --- tool_registry
    Bad("list_as_tool_registry", "tool_registry: []\n", "1:1", "'tool_registry' must be an object, got array"),
    Bad("unknown_key_of_tool_registry", "tool_registry:\n  strict_mod: true\n", "2:3", "Did you mean 'strict_mode'?"),
    Bad("text_as_strict_mode", 'tool_registry:\n  strict_mode: "true"\n', "2:3", "must be a boolean, got string"),
    Bad("number_as_cache", "tool_registry:\n  cache_compiled_schemas: 1\n", "2:3", "must be a boolean, got integer"),
    Bad("negative_schema_size", "tool_registry:\n  max_schema_size: -1\n", "2:3", "must be at least 1"),
    Bad("no_schema_depth", "tool_registry:\n  max_schema_depth: 0\n", "2:3", "must be at least 1"),
    Bad("text_as_argument_size", 'tool_registry:\n  max_argument_size: "10"\n', "2:3", "must be an integer, got string"),
    Bad("boolean_as_argument_depth", "tool_registry:\n  max_argument_depth: true\n", "2:3", "must be an integer, got boolean"),
    Bad("list_as_fanout", "tool_registry:\n  max_fanout: [1]\n", "2:3", "must be an integer, got array"),
    Bad("huge_work", "tool_registry:\n  max_work: 99999999999\n", "2:3", "must be at most 2147483648"),
    Bad("fraction_of_an_error", "tool_registry:\n  max_errors: 1.5\n", "2:3", "a number with a fraction"),
    Bad("null_as_timeout", "tool_registry:\n  pattern_timeout_ms:\n", "2:3", "must be an integer, got null"),
    Bad("unit_in_a_limit", "tool_registry:\n  max_schema_size: 100KB\n", "2:3", "must be an integer, got string"),
    Bad("unknown_log_level", "tool_registry:\n  validation_failure_log_level: loud\n", "2:3", '"debug", "info", "warning", "error"'),
    Bad("log_level_in_capitals", "tool_registry:\n  validation_failure_log_level: WARNING\n", "2:3", 'Use "warning"'),
    Bad("number_as_log_level", "tool_registry:\n  validation_failure_log_level: 30\n", "2:3", "is not an allowed value"),
    Bad("number_as_actual_values", "tool_registry:\n  include_actual_values: 0\n", "2:3", "must be a boolean, got integer"),
    Bad("text_as_providers", "tool_registry:\n  providers: acme\n", "2:3", "'providers' must be an array, got string"),
    Bad("number_as_provider", "tool_registry:\n  providers: [acme, 1]\n", "2:21", "item 1 must be a string, got integer"),
    Bad("empty_provider", 'tool_registry:\n  providers: [""]\n', "2:15", "at least 1 characters"),
    # --- lists of tools
    Bad("object_as_custom_tools", "tool_registry:\n  custom_tools:\n    name: greet\n", "2:3", "'custom_tools' must be an array, got object"),
    Bad("text_as_tools", "tools: tools.py\n", "1:1", "'tools' must be"),
    Bad("object_as_file_of_tools", "tools: [{}]\n", "1:9", "must be a string, got object"),
    Bad("object_as_tools_custom", "tools:\n  custom: {}\n", "2:3", "'custom' must be an array, got object"),
    Bad("text_as_tools_custom_tools", "tools:\n  custom_tools: greet\n", "2:3", "'custom_tools' must be an array, got string"),
    Bad("unknown_key_of_tools", "tools:\n  customs: []\n", "2:3", "Did you mean 'custom'?"),
    Bad("text_as_disabled_tools", "disabled_tools: read_file\n", "1:1", "'disabled_tools' must be an array, got string"),
    Bad("number_as_disabled_tool", "disabled_tools:\n  - read_file\n  - 1\n", "3:5", "item 1 must be a string, got integer"),
    Bad("empty_disabled_tool", 'disabled_tools: [""]\n', "1:18", "does not match its pattern"),
    Bad("disabled_tool_with_a_blank", "disabled_tools: [read file]\n", "1:18", "does not match its pattern"),
    Bad("disabled_tool_without_its_version", "disabled_tools: ['a@']\n", "1:18", "does not match its pattern"),
    Bad("disabled_tool_with_two_versions", "disabled_tools: [a@1.0.0@2.0.0]\n", "1:18", "does not match its pattern"),
    Bad("disabled_tool_with_a_line_break", 'disabled_tools: ["a\\nb"]\n', "1:18", "does not match its pattern"),
    Bad("disabled_tool_with_another_letter", "disabled_tools: [\N{KELVIN SIGN}ill]\n", "1:18", "does not match its pattern"),
    Bad("disabled_version_with_a_blank", "tool_registry:\n  disabled_tools: ['a@1 0']\n", "2:20", "does not match its pattern"),
    Bad("boolean_as_disabled_tool", "tool_registry:\n  disabled_tools: [true]\n", "2:20", "item 0 must be a string, got boolean"),
    # --- permissions and agents
    Bad("text_as_permissions", "permissions: mail\n", "1:1", "'permissions' must be an array, got string"),
    Bad("object_as_permission", "permissions: [{}]\n", "1:15", "item 0 must be a string, got object"),
    Bad("empty_permission", 'permissions: [""]\n', "1:15", "at least 1 characters"),
    Bad("list_as_agents", "agents:\n  - ada\n", "1:1", "'agents' must be an object, got array"),
    Bad("text_as_agent", "agents:\n  ada: all\n", "2:3", "'ada' must be an object, got string"),
    Bad("agent_without_a_name", 'agents:\n  "": {}\n', "1:1", "a property name that is not allowed"),
    Bad("unknown_key_of_agent", "agents:\n  ada:\n    capabilites: []\n", "3:5", "Did you mean 'capabilities'?"),
    Bad("number_as_description", "agents:\n  ada:\n    description: 1\n", "3:5", "must be a string, got integer"),
    Bad("text_as_capabilities", "agents:\n  ada:\n    capabilities: fs.read\n", "3:5", "must be an array, got string"),
    Bad("number_as_capability", "agents:\n  ada:\n    capabilities: [1]\n", "3:20", "item 0 must be a string, got integer"),
    Bad("object_as_permissions_of_agent", "agents:\n  ada:\n    permissions: {}\n", "3:5", "must be an array, got object"),
    Bad("number_as_permission_of_agent", "agents:\n  ada:\n    permissions: [1]\n", "3:19", "item 0 must be a string, got integer"),
    # --- policies and approvals
    Bad("text_as_policies", "policies: main.cedar\n", "1:1", "'policies' must be an array, got string"),
    Bad("number_as_policy", "policies: [1]\n", "1:12", "item 0 must be a string, got integer"),
    Bad("empty_policy", 'policies: [""]\n', "1:12", "at least 1 characters"),
    Bad("list_as_approvals", "approvals: []\n", "1:1", "'approvals' must be an object, got array"),
    Bad("unknown_key_of_approvals", "approvals:\n  waits: 1\n", "2:3", "Did you mean 'wait'?"),
    Bad("text_as_wait", "approvals:\n  wait: 5m\n", "2:3", "must be a number, got string"),
    Bad("negative_wait", "approvals:\n  wait: -1\n", "2:3", "must be at least 0"),
    Bad("endless_wait", "approvals:\n  wait: 86401\n", "2:3", "must be at most 86400"),
    Bad("text_as_paranoid", 'approvals:\n  paranoid: "no"\n', "2:3", "must be a boolean, got string"),
    # --- a variable's default is checked as if it were written there
    Bad("default_of_a_wrong_type", "tool_registry:\n  max_work: ${WORK:-much}\n", "2:3", "must be an integer, got string"),
    Bad("quoted_default_of_a_wrong_type", 'tool_registry:\n  max_work: "${WORK:-10}"\n', "2:3", "must be an integer, got string"),
)  # fmt: skip

AGAINST_A_RULE = (
    Bad("two_keys", "database: {url: 'postgresql://db/keep', key: 24 letters and a few more, key_file: /run/key}\n", "1:73", "remove one of them"),
    Bad("strict_mode_off", "tool_registry:\n  strict_mode: false\n", "2:3", "strict_mode cannot be false"),
    Bad("cache_off", "tool_registry:\n  cache_compiled_schemas: false\n", "2:3", "cache_compiled_schemas cannot be false"),
    Bad("unknown_capability", "agents:\n  ada:\n    capabilities: [fs.read:., fs.fly]\n", "3:31", "'fs.fly' is not one of fs.read"),
    Bad("capability_of_an_agent_with_an_odd_name", "agents:\n  a/b~c:\n    capabilities: [nope]\n", "3:20", "'nope' is not one of"),
    Bad("scope_that_nobody_can_read", "agents:\n  ada:\n    capabilities: ['net.read:a b']\n", "3:20", "a b"),
    Bad("unknown_permission", "agents:\n  ada:\n    permissions: [tool.api.call, zzz]\n", "3:34", "there is no permission 'zzz'; name it under `permissions` first"),
    Bad("misspelled_permission", "agents:\n  ada:\n    permissions: [tool.api.cal]\n", "3:19", "did you mean 'tool.api.call'?"),
    Bad("no_variable", 'permissions: ["mail${"]\n', "1:15", "'${' does not start a variable"),
    Bad("variable_that_starts_with_a_digit", "permissions: [mail, '${1ST}']\n", "1:21", "'${' does not start a variable"),
    Bad("variable_inside_a_default", "permissions: ['${A:-${B}}']\n", "1:15", "'${' does not start a variable"),
    Bad("variable_without_an_end", "permissions:\n  - mail\n  - ${HOME\n", "3:5", "'${' does not start a variable"),
)  # fmt: skip

TOO_LARGE = Bad("too_large", b"#" * (CONFIG_FILE_BYTES + 1), "", f"is over {CONFIG_FILE_BYTES} bytes")
