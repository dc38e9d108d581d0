-- What accept and recover need: up to which transaction all rows are settled, and which rows an operator accepted as missing.
ALTER TABLE cdc_relay.progress
    ADD COLUMN ended_xid   xid8,
    ADD COLUMN ended_at    pg_lsn,
    ADD COLUMN settled_xid xid8;
COMMENT ON COLUMN cdc_relay.progress.ended_xid   IS 'every transaction with a lower id had ended when the WAL ended at ended_at, so its commit is below that';
COMMENT ON COLUMN cdc_relay.progress.settled_xid IS 'every transaction with a lower id is settled: an ended_xid whose ended_at the relay has settled; NULL: not known';

CREATE TABLE cdc_relay.gap (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot         text COLLATE "C" NOT NULL,
    system_id    text COLLATE "C" NOT NULL,
    incarnation  bigint NOT NULL,
    finding      text NOT NULL,
    reason       text NOT NULL,
    from_lsn     pg_lsn,
    until_lsn    pg_lsn,
    from_xid     xid8,
    until_xid    xid8,
    accepted_at  timestamptz NOT NULL DEFAULT now(),
    recovered_at timestamptz
);
CREATE INDEX gap_open ON cdc_relay.gap (slot, id) WHERE recovered_at IS NULL;
COMMENT ON TABLE  cdc_relay.gap IS 'Intervals that an operator accepted as missing (cdc-relay accept), for cdc-relay recover.';
COMMENT ON COLUMN cdc_relay.gap.system_id    IS 'of the cluster in which the rows were committed';
COMMENT ON COLUMN cdc_relay.gap.incarnation  IS 'of the slot before the gap: its events come before the gap, and those of a higher incarnation after it';
COMMENT ON COLUMN cdc_relay.gap.finding      IS 'the ID that was accepted';
COMMENT ON COLUMN cdc_relay.gap.from_lsn     IS 'what was committed before is settled; NULL: not known';
COMMENT ON COLUMN cdc_relay.gap.until_lsn    IS 'the slot sends what was committed from here on; NULL: it was not used yet';
COMMENT ON COLUMN cdc_relay.gap.from_xid     IS 'every transaction with a lower id is settled; NULL: not known';
COMMENT ON COLUMN cdc_relay.gap.until_xid    IS 'the slot sends every transaction with this id or a higher one; NULL: it was not used yet';
COMMENT ON COLUMN cdc_relay.gap.recovered_at IS 'when recover copied its rows into the retry table';
