-- What operators write has a length: the leader reads it, and it is copied into each request of a job. What is longer already is
-- cut; a filter cannot be, so its job ends.
WITH job AS (UPDATE cdc_relay.bulk SET state = 'cancelled', closed_at = now(), filter = NULL, condition = NULL
        WHERE closed_at IS NULL AND (octet_length(filter) > 2097152 OR octet_length(condition) > 131072) RETURNING slot, system_id, job)
    INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result)
        SELECT slot, system_id, '(the relay)', 'cancel', 0, 'its filter is too long', 'job ' || job FROM job;
UPDATE cdc_relay.bulk SET reason = left(reason, 1000), route_name = substring(route_name, 1, 1024), routing_key = substring(routing_key, 1, 1024)
    WHERE char_length(reason) > 1000 OR octet_length(route_name) > 1024 OR octet_length(routing_key) > 1024;
UPDATE cdc_relay.request SET reason = left(reason, 1000), route_name = substring(route_name, 1, 1024), routing_key = substring(routing_key, 1, 1024)
    WHERE char_length(reason) > 1000 OR octet_length(route_name) > 1024 OR octet_length(routing_key) > 1024;
ALTER TABLE cdc_relay.request ADD CONSTRAINT request_lengths
    CHECK (char_length(reason) <= 1000 AND octet_length(route_name) <= 1024 AND octet_length(routing_key) <= 1024);
ALTER TABLE cdc_relay.bulk ADD CONSTRAINT bulk_lengths
    CHECK (char_length(reason) <= 1000 AND octet_length(route_name) <= 1024 AND octet_length(routing_key) <= 1024
        AND octet_length(filter) <= 2097152 AND octet_length(condition) <= 131072);
-- Retention asks which copies wait without their values: these are in the outbox table alone.
CREATE INDEX retry_left_out_tx ON cdc_relay.retry (tx) WHERE left_out IS NOT NULL;
-- Ordering keys are digested under a secret of the slot: who may write to an outbox table could compute keys that share a digest with
-- another aggregate's, and hold that one up. Who may read this table could, too.
ALTER TABLE cdc_relay.slots ADD COLUMN key_secret uuid NOT NULL DEFAULT gen_random_uuid();
COMMENT ON COLUMN cdc_relay.slots.key_secret IS 'the secret under which ordering_group has keys; another one means that rows are grouped again by the next leader. hash is without it';
COMMENT ON COLUMN cdc_relay.retry.hash IS 'digest of aggregate and key, without the slot''s secret: the version before groups by it; of the position when the event has no key';
-- A new leader asks which exchanges were missing.
CREATE INDEX retry_no_exchange ON cdc_relay.retry (slot, exchange_or_topic) WHERE reason = 'no_exchange';
-- error has no numbers, so that equal faults have equal texts: an index is on it. People read the broker's own words.
ALTER TABLE cdc_relay.retry       ADD COLUMN error_text text;
ALTER TABLE cdc_relay.dead_letter ADD COLUMN error_text text;
COMMENT ON COLUMN cdc_relay.retry.error_text       IS 'error text of the last refusal as the broker gave it; NULL: error has all of it, or it is not kept. It counts only if it is error but for numbers and UUIDs: the version before does not write it';
COMMENT ON COLUMN cdc_relay.dead_letter.error_text IS 'as in retry';
