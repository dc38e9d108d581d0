-- What `cdc-relay dead-letters`, `deferred` and `events show` need, and no more. They see payloads.
GRANT USAGE ON SCHEMA cdc_relay TO relay_operator;
GRANT SELECT ON ALL TABLES IN SCHEMA cdc_relay TO relay_operator;                       -- list, show: payloads too
GRANT SELECT ON outbox TO relay_operator;                                               -- events show
GRANT INSERT ON cdc_relay.request, cdc_relay.bulk, cdc_relay.audit TO relay_operator;   -- replay, discard, redact, purge, retry, dead_letter
GRANT UPDATE (state, done_at) ON cdc_relay.request TO relay_operator;                   -- request --cancel
GRANT UPDATE (state, closed_at, filter) ON cdc_relay.bulk TO relay_operator;            -- job --cancel
GRANT USAGE ON SEQUENCE cdc_relay.job TO relay_operator;                                -- --all
