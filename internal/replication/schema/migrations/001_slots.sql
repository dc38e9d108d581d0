-- What a relay must remember of its slot: who leads, and how far it may have reported.
CREATE TABLE cdc_relay.slots (
    slot        name PRIMARY KEY,
    system_id   text NOT NULL,
    timeline    integer NOT NULL,
    publication text NOT NULL,
    state       text NOT NULL CHECK (state IN ('creating', 'ready', 'adopt')),
    incarnation bigint NOT NULL,
    epoch       bigint NOT NULL DEFAULT 0,
    leader      text NOT NULL DEFAULT '',
    sends       jsonb NOT NULL DEFAULT '{}',
    changed_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE  cdc_relay.slots IS 'One row per replication slot of a cdc-relay. Written when the slot is created or adopted, by a new leader, and when a table is added.';
COMMENT ON COLUMN cdc_relay.slots.system_id   IS 'system identifier of the cluster the slot was created in (IDENTIFY_SYSTEM)';
COMMENT ON COLUMN cdc_relay.slots.timeline    IS 'timeline of that cluster; another one means a restore or a promoted standby';
COMMENT ON COLUMN cdc_relay.slots.publication IS 'the publication the slot is read with; the positions of events depend on it';
COMMENT ON COLUMN cdc_relay.slots.state       IS 'creating: not usable yet. ready. adopt: set by an operator to accept the slot as it is now';
COMMENT ON COLUMN cdc_relay.slots.incarnation IS 'raised each time the slot is created or adopted';
COMMENT ON COLUMN cdc_relay.slots.epoch       IS 'raised by each new leader; statements of a former leader no longer match it and change nothing';
COMMENT ON COLUMN cdc_relay.slots.leader      IS 'host and process id of the current leader, for people';
COMMENT ON COLUMN cdc_relay.slots.sends       IS 'OID and version (xmin) of the publication, per table its OID, those of its memberships, and those of tables that had its name; another publication, version, table or membership means that rows were not sent for a time';

CREATE TABLE cdc_relay.progress (
    slot          name PRIMARY KEY,
    max_flush_lsn pg_lsn NOT NULL,
    reported      pg_lsn NOT NULL,
    good          pg_lsn NOT NULL,
    at            timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE  cdc_relay.progress IS 'How far the relay of a slot may have reported. A slot above the flush limit was re-created or moved.';
COMMENT ON COLUMN cdc_relay.progress.max_flush_lsn IS 'the flush limit: no position above it was ever reported to the slot; raised durably before a report uses it';
COMMENT ON COLUMN cdc_relay.progress.reported      IS 'the position reported when the row was written last';
COMMENT ON COLUMN cdc_relay.progress.good          IS 'publication and tables were last checked and in order at this position; if a later check fails, rows after it may be missing';
