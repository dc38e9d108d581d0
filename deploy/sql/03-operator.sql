-- What `cdc-relay dead-letters`, `deferred` and `events show` need, and no more. They see payloads. Who asks is the role that
-- logged in: it may not be written, and neither may the audit. The first line takes back what an earlier version of this file gave.
REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA cdc_relay FROM relay_operator;
GRANT USAGE ON SCHEMA cdc_relay TO relay_operator;
GRANT SELECT ON ALL TABLES IN SCHEMA cdc_relay TO relay_operator;                       -- list, show: payloads too
GRANT SELECT ON public.outbox TO relay_operator;                                        -- events show
GRANT INSERT (slot, system_id, kind, n, route_name, routing_key, reason)
  ON cdc_relay.request TO relay_operator;                                               -- replay, discard, redact, purge, retry, dead_letter
GRANT INSERT (slot, system_id, kind, filter, route_name, routing_key, rate, reason, matched, in_dead_letters)
  ON cdc_relay.bulk TO relay_operator;                                                  -- --all
GRANT USAGE ON SEQUENCE cdc_relay.job TO relay_operator;                                -- --all
GRANT EXECUTE ON FUNCTION cdc_relay.cancel_request(bigint, text, text),
  cdc_relay.cancel_job(bigint, text, text) TO relay_operator;                           -- request --cancel, job --cancel
