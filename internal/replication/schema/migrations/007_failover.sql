-- What a relay needs after a promotion, for rows that were too large to read, and to find an event by its id.
ALTER TABLE cdc_relay.progress
    ADD COLUMN settled_lsn pg_lsn,
    ADD COLUMN settled_of  bigint;
COMMENT ON COLUMN cdc_relay.progress.settled_lsn IS 'every event committed below it was confirmed by the broker or has a row here that was committed before this was written; a promoted standby whose slot is not above it misses nothing; NULL: not known';
COMMENT ON COLUMN cdc_relay.progress.settled_of  IS 'the incarnation of the slot that settled_lsn is of; of another one nothing is known';

ALTER TABLE cdc_relay.slots
    ADD COLUMN standbys       text[] NOT NULL DEFAULT '{}',
    ADD COLUMN other_standbys boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN cdc_relay.slots.standbys       IS 'physical slots that synchronized_standby_slots named while this slot was read, and that had all that was read from it';
COMMENT ON COLUMN cdc_relay.slots.other_standbys IS 'the server had, or may have had, a physical slot that standbys does not name';

ALTER TABLE cdc_relay.retry       ADD COLUMN left_out text;
ALTER TABLE cdc_relay.dead_letter ADD COLUMN left_out text;
COMMENT ON COLUMN cdc_relay.retry.left_out       IS 'the outbox table, as schema.name, whose row has values that are left out here, because it is larger than source.max_event_bytes; empty: it was a logical message; NULL: nothing is left out';
COMMENT ON COLUMN cdc_relay.dead_letter.left_out IS 'as in retry; a replay reads the row from that table';

-- A replay of such a row reads all of it into memory: a relay that is killed by that must not be killed again by the same request.
ALTER TABLE cdc_relay.request ADD COLUMN begun_epoch bigint;
COMMENT ON COLUMN cdc_relay.request.begun_epoch IS 'of a replay that reads the row from the outbox table: the epoch of the leader that began to; NULL: none did';

-- The id goes first: an index that begins with the slot alone is taken for reads in the order of the positions, while
-- the table is small or has no statistics. The status view had made one of that kind.
DROP INDEX IF EXISTS cdc_relay.retry_id;
CREATE INDEX retry_id ON cdc_relay.retry (substring(id, 1, 200), slot);

ALTER TABLE cdc_relay.gap ADD COLUMN left_out boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cdc_relay.gap.left_out IS 'a condition of recover may have left rows of it out, so retention deletes none of it';
