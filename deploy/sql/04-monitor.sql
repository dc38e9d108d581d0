-- What a monitoring role may see: how far the slots are, how much is deferred and dead, and why; no payload, key, id or
-- broker's error. `cdc-relay status` works with it when no relay answers.
-- It is no member of pg_monitor or pg_read_all_stats: these see the statements of other sessions in pg_stat_activity, with what a
-- service that INSERTs literals has written. The first line takes back what an earlier version of this file gave.
REVOKE pg_monitor FROM relay_monitor;
GRANT USAGE ON SCHEMA cdc_relay TO relay_monitor;
GRANT SELECT ON cdc_relay.slots, cdc_relay.progress, cdc_relay.migration TO relay_monitor;
GRANT SELECT (slot, system_id, incarnation, commit_lsn, idx, n, commit_time, deferred_at, first_failed_at, next_attempt, attempts, bytes, class, reason)
  ON cdc_relay.retry TO relay_monitor;
GRANT SELECT (slot, system_id, incarnation, commit_lsn, idx, n, commit_time, deferred_at, first_failed_at, died_at, closed_at, mirrored_at, state, attempts, bytes, class, reason)
  ON cdc_relay.dead_letter TO relay_monitor;
GRANT SELECT (slot, system_id, at, action, n, result) ON cdc_relay.audit TO relay_monitor;
