-- By which ordering the rows of a slot are grouped, so that a new leader need not read them all to find out.
ALTER TABLE cdc_relay.slots
    ADD COLUMN grouped_by    text NOT NULL DEFAULT '',
    ADD COLUMN grouped_epoch bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN cdc_relay.slots.grouped_by    IS 'what an ordering group was under the leader of grouped_epoch: all rows of its retry table, and its open dead letters, were grouped so; empty: unknown';
COMMENT ON COLUMN cdc_relay.slots.grouped_epoch IS 'the epoch of the leader that wrote grouped_by; if it is not the last one before a new leader''s, rows may be grouped otherwise, and are looked through';
