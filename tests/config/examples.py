"""Good configuration files: the seed's own, and one that uses every key."""

SEED = """\
tool_registry:
  # Enable/disable strict mode (always true, cannot be disabled)
  strict_mode: true

  # Maximum schema size in bytes (prevents memory exhaustion)
  max_schema_size: 102400  # 100KB

  # Enable pattern validation timeout (prevents ReDoS)
  pattern_timeout_ms: 100

  # Enable schema caching (should always be true)
  cache_compiled_schemas: true

  # Log validation failures at this level
  validation_failure_log_level: warning

  # Include actual values in error messages (disable for sensitive tools)
  include_actual_values: true

  # Custom tool definitions
  custom_tools:
    - name: my_custom_tool
      version: "1.0.0"
      description: A custom tool for specific operations
      category: custom
      parameters:
        type: object
        properties:
          input:
            type: string
            description: The input value
"""

SCENARIO_6 = """\
tools:
  custom_tools:
    - name: custom_greeting
      version: 1.0.0
      category: Custom
      description: Generates a personalized greeting message
      parameters:
        type: object
        properties:
          name:
            type: string
            description: Name of the person to greet
            maxLength: 100
          style:
            type: string
            enum: [formal, casual, enthusiastic]
            default: casual
        required:
          - name
        additionalProperties: false
"""

SCENARIO_7 = """\
tools:
  custom_tools:
    - name: broken_tool
      version: 1.0.0
      description: This tool has an invalid schema
      parameters:
        type: object
        properties:
          value:
            type: invalid_type_name
"""

POLICY = '@id("everybody") permit (principal, action == Action::"call", resource);'
"""What FULL names as policies/main.cedar."""

FULL = """\
# yaml-language-server: $schema=toolkeep.schema.json
tier: WriterPro
features:
  tools: {definition: true}
unconfined: [read_file]
flow:
  policy: standard
  spare: medium
  idle_s: 3600
  measures:
    spent: {sum: full_one/amount, over: 24h}
    looks: {count: read_file, over: session}
  budget: {spent: 500, calls: 200/hour}
disabled_tools: [run_command, grep_search@1.0.0]
permissions: [mail.send]
upstreams:
  shop:
    openapi: shop.json
    url: https://shop.example/v1
    operations: [get_book]
    danger: {get_book: low}
    check_answers: false
    secrets: {key: {env: SHOP_KEY}, token: {file: ~/token}, login: {keyring: shop/ada}}
drift: true
undo: {days: 2.5}
audit:
  checkpoint_file: /mnt/elsewhere/checkpoint
  checkpoint_webhook: https://example.org/checkpoints
  witnesses:
    - url: https://witness.example.org/books
      key: library+ec33deea+BAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4
  witness_for: [toolkeep/83f45518f2cef77d+feb06fed+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4]
web_search: {url: https://search.example.org/search}
database: {url: postgresql://keep@127.0.0.1:1/keep}
fleet:
  nats: {servers: [nats://127.0.0.1:4222], user: keep, password: secret}
  lease: 5
  runs_on: {read_file: gpu}
  workers:
    - name: one
      key: ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=
      labels: [gpu]
      tools: [read_file]
      levels: [strict]
      agents: [ada]
worker:
  nats: {servers: tls://127.0.0.1:4222, nkey_file: ~/worker.nk, ca_file: ca.pem}
  labels: [gpu]
  slots: 2
  servers:
    - name: keep
      key: ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=
      tools: [read_file]
      agents: [ada]
      capabilities: ["fs.read:./docs"]
identity:
  issuers:
    - issuer: https://login.example.org/realms/main
      audience: https://keep.example.org/mcp
      algorithm: ES256
      keys: https://login.example.org/keys
      host: login.example.org
      token_type: JWT
      max_hours: 1
      limits_scopes: true
      grants:
        - claims: {client_id: nightly}
          agent: writer
          scopes: [call, viewer]
      page:
        client_id: page
        client_secret_file: /etc/toolkeep/login.secret
        label: Example login
        scope: openid groups
        grants:
          - claims: {groups: keepers}
            agent: writer
            scopes: [approver]
events:
  webhook:
    url: https://hooks.example.org/in
    secret: twenty-four letters or more
    types: [ToolQuarantined]
policies: [policies/main.cedar]
approvals: {wait: 60, paranoid: true}
agents:
  ada:
    description: Reads the documents.
    capabilities: ["fs.read:./docs", "net.read:example.org"]
    permissions: [mail.send]
  bob: {}
tool_registry:
  strict_mode: true
  cache_compiled_schemas: true
  max_schema_size: 102400
  max_schema_depth: 10
  max_argument_size: 1000
  max_argument_depth: 10
  max_fanout: 10
  max_work: 1000
  max_errors: 5
  pattern_timeout_ms: 100
  validation_failure_log_level: error
  include_actual_values: false
  providers: [acme]
  disabled_tools: [edit_code]
  custom_tools:
    - name: full_tool
      description: Uses every field that a definition has.
      version: 1.0.0
      category: external_api
      parameters:
        type: object
        properties:
          to: {type: string, description: Whom to greet., maxLength: 100}
      output_schema: {type: object, properties: {text: {type: string}}}
      result_type: object
      normalization: json
      constraints:
        max_execution_time: 5
        max_output_size: 2048
        allow_side_effects: true
        required_isolation: standard
      resource_bounds:
        max_memory: 67108864
        max_cpu: 0.5
        max_network: {max_requests: 5, max_bytes: 5000}
      required_permissions: [mail.send]
      capabilities: ["net.write:example.org"]
      side_effects: [NetWrite]
      flow: {'': system}
      determinism: NonDeterministic
      idempotent: false
      danger: medium
      requires_confirmation: true
      sensitive: true
      usage_metadata: Use it to greet.
      enabled: true
      aliases: [full_one]
      metadata: {team: shop}
      run: {python: "shop.tools:greet"}
tools:
  custom:
    - {name: by_command, description: Says what is new., version: 1.0.0, run: {command: [git, status]}}
    - {name: by_http, description: Asks a server., version: 1.0.0, run: {http: "https://example.org"}}
    - {name: by_http_too, description: Asks a server., version: 1.0.0, run: {http: {url: "https://example.org"}}}
    - {name: by_wasm, description: Runs a module., version: 1.0.0, run: {wasm: a.wasm}}
  custom_tools:
    - {name: by_client, description: Is done by the client., version: 1.0.0, client_executed: true}
    - name: listed
      description: Takes its parameters as a list.
      version: 1.0.0
      parameters:
        - {name: to, type: string, description: Whom to greet., required: true}
"""
