-- What a relay must remember of the slot of another program that its own takes the place of.
ALTER TABLE cdc_relay.slots DROP CONSTRAINT slots_state_check;
ALTER TABLE cdc_relay.slots ADD CONSTRAINT slots_state_check CHECK (state IN ('creating', 'ready', 'adopt', 'takeover'));
ALTER TABLE cdc_relay.slots
    ADD COLUMN took_from        text NOT NULL DEFAULT '',
    ADD COLUMN took_until       pg_lsn NOT NULL DEFAULT '0/0',
    ADD COLUMN took_incarnation bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN cdc_relay.slots.state            IS 'creating: not to be used yet. ready. adopt: set by an operator, accepts the slot as it is now. takeover: not to be used until the slot took_from has passed its start';
COMMENT ON COLUMN cdc_relay.slots.took_from        IS 'the slot of another program that this one takes, or took, the place of; empty: none';
COMMENT ON COLUMN cdc_relay.slots.took_until       IS 'that slot''s last confirmed_flush_lsn: what was committed below it was sent by the other program, and is skipped';
COMMENT ON COLUMN cdc_relay.slots.took_incarnation IS 'took_until is of this incarnation of the slot and means nothing to another, which may be on another server';
