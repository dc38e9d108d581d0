-- What a relay must remember about a takeover: another program's slot, which its own slot replaces.
ALTER TABLE cdc_relay.slots DROP CONSTRAINT slots_state_check;
ALTER TABLE cdc_relay.slots ADD CONSTRAINT slots_state_check CHECK (state IN ('creating', 'ready', 'adopt', 'takeover'));
ALTER TABLE cdc_relay.slots
    ADD COLUMN took_from        text NOT NULL DEFAULT '',
    ADD COLUMN took_until       pg_lsn NOT NULL DEFAULT '0/0',
    ADD COLUMN took_incarnation bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN cdc_relay.slots.state            IS 'creating: not usable yet. ready. adopt: set by an operator to accept the slot as it is now. takeover: not usable until the slot took_from has passed its start';
COMMENT ON COLUMN cdc_relay.slots.took_from        IS 'the slot of another program that this one replaces or has replaced; empty: none';
COMMENT ON COLUMN cdc_relay.slots.took_until       IS 'that slot''s last confirmed_flush_lsn: what was committed below it was sent by the other program and is skipped';
COMMENT ON COLUMN cdc_relay.slots.took_incarnation IS 'the incarnation of the slot that took_until belongs to; another one may be on another server';
