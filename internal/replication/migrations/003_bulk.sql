-- What operators ask for about many rows at once. One row says what; the leader makes the requests from it, page by page and
-- at the rate asked for, so that asking costs the same for ten rows and for a million.
CREATE TABLE cdc_relay.bulk (
    job         bigint PRIMARY KEY DEFAULT nextval('cdc_relay.job'),
    slot        text COLLATE "C" NOT NULL,
    system_id   text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL CHECK (kind IN ('replay', 'discard', 'redact', 'retry', 'deadletter', 'purge')),
    filter      bytea,
    route_name  bytea,
    routing_key bytea,
    rate        integer,
    who         text NOT NULL,
    reason      text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    matched     bigint NOT NULL,
    asked       bigint NOT NULL DEFAULT 0,
    skipped     bigint NOT NULL DEFAULT 0,
    in_letters  boolean NOT NULL,
    incarnation bigint NOT NULL DEFAULT 0,
    commit_lsn  pg_lsn NOT NULL DEFAULT '0/0',
    idx         bigint NOT NULL DEFAULT -1,
    state       text COLLATE "C" NOT NULL DEFAULT 'asking' CHECK (state IN ('asking', 'asked', 'done', 'cancelled')),
    closed_at   timestamptz
);
CREATE INDEX bulk_open ON cdc_relay.bulk (slot, job) WHERE closed_at IS NULL;
COMMENT ON TABLE  cdc_relay.bulk IS 'What operators asked for about many rows: the leader makes cdc_relay.request of it.';
COMMENT ON COLUMN cdc_relay.bulk.job         IS 'request.job of its requests';
COMMENT ON COLUMN cdc_relay.bulk.filter      IS 'which rows, as JSON; forgotten when the job is closed, because it may hold a person''s key';
COMMENT ON COLUMN cdc_relay.bulk.rate        IS 'requests per second; NULL: as fast as they are carried out';
COMMENT ON COLUMN cdc_relay.bulk.reason      IS 'why, in the operator''s words';
COMMENT ON COLUMN cdc_relay.bulk.matched     IS 'rows that the filter chose when it was asked for';
COMMENT ON COLUMN cdc_relay.bulk.asked       IS 'requests made so far';
COMMENT ON COLUMN cdc_relay.bulk.skipped     IS 'rows about which another request waited';
COMMENT ON COLUMN cdc_relay.bulk.in_letters  IS 'requests are being made about dead letters, after the position below; false: about parked rows';
COMMENT ON COLUMN cdc_relay.bulk.state       IS 'asking: requests are being made; asked: all are made, some wait; done; cancelled by an operator';

CREATE INDEX dead_letter_reason ON cdc_relay.dead_letter (slot, reason, died_at DESC, n DESC);
CREATE INDEX request_n ON cdc_relay.request (n, id DESC);
