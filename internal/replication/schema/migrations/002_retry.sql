-- The retry table, the dead letters, and the requests of operators about them.
--
-- What came from outside (ids, keys, payloads, names of exchanges) is bytea, NULL and empty kept apart: a text column
-- refuses a NUL byte, and a database of another encoding refuses more.
--
-- toast_tuple_target: of a row over 2 kB all that is long is stored out of line, so that scans read little.

CREATE SEQUENCE cdc_relay.row_number AS bigint INCREMENT BY 1000;
COMMENT ON SEQUENCE cdc_relay.row_number IS 'Numbers (n) of rows in retry and dead_letter: each nextval leases it and the 999 after it to a leader.';

CREATE TABLE cdc_relay.retry (
    slot               text COLLATE "C" NOT NULL,
    system_id          text COLLATE "C" NOT NULL,
    incarnation        bigint NOT NULL,
    commit_lsn         pg_lsn NOT NULL,
    idx                bigint NOT NULL,
    n                  bigint NOT NULL,
    ordering_group     bigint NOT NULL,
    exchange_or_topic  bigint NOT NULL,
    dest               bigint NOT NULL,
    hash               bigint NOT NULL,
    keyed              boolean NOT NULL,
    ordered            boolean NOT NULL,
    attempts           integer NOT NULL,
    bytes              bigint NOT NULL,
    deferred_at        timestamptz NOT NULL DEFAULT now(),
    next_attempt       timestamptz,
    first_failed_at    timestamptz,
    failed_at          timestamptz,
    class              text COLLATE "C" NOT NULL,
    reason             text COLLATE "C" NOT NULL,
    error              text COLLATE "C" NOT NULL,
    destination        text NOT NULL,
    route_name         bytea,
    routing_key        bytea,
    commit_time        timestamptz NOT NULL,
    event_time         timestamptz NOT NULL,
    id                 bytea,
    aggregate          bytea,
    key                bytea,
    type               bytea,
    payload_kind       smallint NOT NULL,
    payload            bytea,
    traceparent        bytea,
    headers            bytea,
    columns            bytea,
    fault              bytea,
    raw                bytea,
    PRIMARY KEY (slot, system_id, incarnation, commit_lsn, idx)
) WITH (toast_tuple_target = 128, autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_scale_factor = 0.02);
CREATE UNIQUE INDEX retry_n     ON cdc_relay.retry (n);
CREATE        INDEX retry_group ON cdc_relay.retry (slot, ordering_group, incarnation, commit_lsn, idx);
CREATE        INDEX retry_dest  ON cdc_relay.retry (slot, exchange_or_topic, dest, incarnation, commit_lsn, idx);
CREATE        INDEX retry_due   ON cdc_relay.retry (slot, next_attempt) WHERE next_attempt IS NOT NULL;
COMMENT ON TABLE  cdc_relay.retry IS 'Deferred events: refused ones, those behind them in their ordering group, and those whose destination is paused. Rows of another slot or system_id (a copy of the database) are not touched.';
COMMENT ON COLUMN cdc_relay.retry.system_id                IS 'of the cluster the event was committed in; in a copy of the database such rows belong to another system and are not sent';
COMMENT ON COLUMN cdc_relay.retry.incarnation              IS 'of the slot the event was read from; with commit_lsn and idx its position';
COMMENT ON COLUMN cdc_relay.retry.commit_lsn               IS 'commit LSN of the transaction';
COMMENT ON COLUMN cdc_relay.retry.idx                      IS 'index of the event in its transaction';
COMMENT ON COLUMN cdc_relay.retry.n                        IS 'the row''s number: its version for the relay, its name for people; kept when it becomes a dead letter';
COMMENT ON COLUMN cdc_relay.retry.ordering_group           IS 'digest of the ordering group, whose rows are sent in order of position: of hash and exchange or topic (delivery.ordering commit: of exchange or topic alone; none: of position and exchange or topic)';
COMMENT ON COLUMN cdc_relay.retry.exchange_or_topic        IS 'digest of the exchange or topic';
COMMENT ON COLUMN cdc_relay.retry.dest                     IS 'digest of exchange and routing key, or of topic and partition';
COMMENT ON COLUMN cdc_relay.retry.hash                     IS 'digest of aggregate and key; of the position when the event has no key';
COMMENT ON COLUMN cdc_relay.retry.keyed                    IS 'the event has an ordering key';
COMMENT ON COLUMN cdc_relay.retry.ordered                  IS 'later events of its ordering group wait for it';
COMMENT ON COLUMN cdc_relay.retry.attempts                 IS 'refusals that count against retry.max_attempts';
COMMENT ON COLUMN cdc_relay.retry.bytes                    IS 'size of the event';
COMMENT ON COLUMN cdc_relay.retry.next_attempt             IS 'when the first row of an ordering group is tried again, if it was refused; NULL: as soon as its destination is no longer paused';
COMMENT ON COLUMN cdc_relay.retry.class                    IS 'of the last refusal: destination, transient, permanent; empty: it was never refused';
COMMENT ON COLUMN cdc_relay.retry.reason                   IS 'of the last refusal, as in cdc_relay_rejections_total';
COMMENT ON COLUMN cdc_relay.retry.error                    IS 'error text of the last refusal, with # for each number and UUID; empty: it was never refused';
COMMENT ON COLUMN cdc_relay.retry.destination              IS 'what the last refusal was about, or where the event was going';
COMMENT ON COLUMN cdc_relay.retry.route_name               IS 'exchange or topic it goes to, decided when it was deferred; NULL: the template had no value';
COMMENT ON COLUMN cdc_relay.retry.routing_key              IS 'routing key it goes with';
COMMENT ON COLUMN cdc_relay.retry.event_time               IS 'the timestamp column, else commit_time';
COMMENT ON COLUMN cdc_relay.retry.payload_kind             IS '0 json, 1 text, 2 bytea';
COMMENT ON COLUMN cdc_relay.retry.columns                  IS 'extra columns: per column the length of its name, the name, the length of its value + 1 (0: NULL), the value; lengths as unsigned LEB128';
COMMENT ON COLUMN cdc_relay.retry.fault                    IS 'why the row of the outbox could not be relayed as configured';
COMMENT ON COLUMN cdc_relay.retry.raw                      IS 'with fault: the whole row';

CREATE TABLE cdc_relay.dead_letter (
    slot               text COLLATE "C" NOT NULL,
    system_id          text COLLATE "C" NOT NULL,
    incarnation        bigint NOT NULL,
    commit_lsn         pg_lsn NOT NULL,
    idx                bigint NOT NULL,
    n                  bigint NOT NULL,
    ordering_group     bigint NOT NULL,
    exchange_or_topic  bigint NOT NULL,
    dest               bigint NOT NULL,
    hash               bigint NOT NULL,
    keyed              boolean NOT NULL,
    ordered            boolean NOT NULL,
    attempts           integer NOT NULL,
    bytes              bigint NOT NULL,
    deferred_at        timestamptz NOT NULL,
    first_failed_at    timestamptz,
    failed_at          timestamptz,
    died_at            timestamptz NOT NULL DEFAULT now(),
    closed_at          timestamptz,
    mirrored_at        timestamptz,
    redacted_at        timestamptz,
    state              text COLLATE "C" NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'replayed', 'discarded', 'purged')),
    class              text COLLATE "C" NOT NULL,
    reason             text COLLATE "C" NOT NULL,
    error              text COLLATE "C" NOT NULL,
    destination        text NOT NULL,
    route_name         bytea,
    routing_key        bytea,
    commit_time        timestamptz NOT NULL,
    event_time         timestamptz NOT NULL,
    id                 bytea,
    aggregate          bytea,
    key                bytea,
    type               bytea,
    payload_kind       smallint NOT NULL,
    payload            bytea,
    traceparent        bytea,
    headers            bytea,
    columns            bytea,
    fault              bytea,
    raw                bytea,
    PRIMARY KEY (slot, system_id, incarnation, commit_lsn, idx)
) WITH (toast_tuple_target = 128);
-- Lists are newest first, ORDER BY died_at DESC, n DESC, and each index of a list ends in that order: the cost of a page
-- depends on its length, not on how many rows match. The next page begins after (died_at, n) of the last row.
--
-- dead_letter_state serves four lists: of all rows, of a state, of a class and of a reason. There are few combinations, so a
-- list reads one page of each (internal/dlq/list.go). A list by error text does the same per text: # for numbers keeps them few.
-- An id, key or name may be longer than an index entry: the first 200 bytes are indexed, and a list compares the whole too.
CREATE UNIQUE INDEX dead_letter_n           ON cdc_relay.dead_letter (n);
CREATE        INDEX dead_letter_state       ON cdc_relay.dead_letter (slot, state, class, reason, died_at DESC, n DESC);
CREATE        INDEX dead_letter_error       ON cdc_relay.dead_letter (slot, error, died_at DESC, n DESC);
CREATE        INDEX dead_letter_id          ON cdc_relay.dead_letter (slot, substring(id, 1, 200), died_at DESC, n DESC);
CREATE        INDEX dead_letter_key         ON cdc_relay.dead_letter (slot, substring(key, 1, 200), died_at DESC, n DESC);
CREATE        INDEX dead_letter_aggregate   ON cdc_relay.dead_letter (slot, substring(aggregate, 1, 200), died_at DESC, n DESC);
CREATE        INDEX dead_letter_type        ON cdc_relay.dead_letter (slot, substring(type, 1, 200), died_at DESC, n DESC);
CREATE        INDEX dead_letter_name        ON cdc_relay.dead_letter (slot, substring(route_name, 1, 200), died_at DESC, n DESC);
CREATE        INDEX dead_letter_destination ON cdc_relay.dead_letter (slot, substring(CASE WHEN routing_key IS NULL THEN route_name ELSE route_name || '/'::bytea || routing_key END, 1, 200), died_at DESC, n DESC);
CREATE        INDEX dead_letter_group       ON cdc_relay.dead_letter (slot, ordering_group) WHERE state = 'open';
CREATE        INDEX dead_letter_closed      ON cdc_relay.dead_letter (slot, closed_at) WHERE state IN ('replayed', 'discarded');
CREATE        INDEX dead_letter_unmirrored  ON cdc_relay.dead_letter (slot, n) WHERE mirrored_at IS NULL AND state <> 'purged';
COMMENT ON TABLE  cdc_relay.dead_letter IS 'Events that the relay gave up on. Columns with a name from retry have the same meaning.';
COMMENT ON COLUMN cdc_relay.dead_letter.deferred_at        IS 'when the event was deferred';
COMMENT ON COLUMN cdc_relay.dead_letter.died_at            IS 'when it became a dead letter';
COMMENT ON COLUMN cdc_relay.dead_letter.closed_at          IS 'when it was replayed, discarded or purged';
COMMENT ON COLUMN cdc_relay.dead_letter.mirrored_at        IS 'when the mirror''s broker confirmed it';
COMMENT ON COLUMN cdc_relay.dead_letter.redacted_at        IS 'when its contents were removed; it cannot be replayed any more';
COMMENT ON COLUMN cdc_relay.dead_letter.state              IS 'open; replayed; discarded; purged: emptied, only the position stays until the slot cannot send the event again';

CREATE TABLE cdc_relay.request (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot               text COLLATE "C" NOT NULL,
    system_id          text COLLATE "C" NOT NULL,
    kind               text COLLATE "C" NOT NULL CHECK (kind IN ('replay', 'discard', 'redact', 'retry', 'dead_letter', 'purge')),
    n                  bigint NOT NULL,
    route_name         bytea,
    routing_key        bytea,
    who                text NOT NULL,
    reason             text NOT NULL DEFAULT '',
    job                bigint,
    created_at         timestamptz NOT NULL DEFAULT now(),
    state              text COLLATE "C" NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'done', 'failed', 'cancelled')),
    result             text NOT NULL DEFAULT '',
    done_at            timestamptz
);
CREATE UNIQUE INDEX request_target  ON cdc_relay.request (n) WHERE state = 'waiting';
CREATE        INDEX request_waiting ON cdc_relay.request (slot, id) WHERE state = 'waiting';
CREATE        INDEX request_n       ON cdc_relay.request (n, id DESC);
CREATE        INDEX request_job     ON cdc_relay.request (job, state);
CREATE        INDEX request_done    ON cdc_relay.request (slot, done_at) WHERE state <> 'waiting';
COMMENT ON TABLE  cdc_relay.request IS 'Requests of operators, which the leader carries out. At most one request per row is waiting.';
COMMENT ON COLUMN cdc_relay.request.kind                   IS 'replay, discard, redact: a dead letter; retry, dead_letter: a row of retry; purge: either';
COMMENT ON COLUMN cdc_relay.request.n                      IS 'of the row it is about';
COMMENT ON COLUMN cdc_relay.request.route_name             IS 'of replay: exchange or topic to send it to; NULL: where it was going';
COMMENT ON COLUMN cdc_relay.request.routing_key            IS 'of replay: routing key to send it with; NULL: the dead letter''s';
COMMENT ON COLUMN cdc_relay.request.who                    IS 'database role and OS user, or the token''s name';
COMMENT ON COLUMN cdc_relay.request.reason                 IS 'why, as the operator gave it';
COMMENT ON COLUMN cdc_relay.request.job                    IS 'common to the requests of one bulk command; from the sequence job';
COMMENT ON COLUMN cdc_relay.request.state                  IS 'waiting; done; failed: result says why; cancelled by an operator while it waited';

CREATE SEQUENCE cdc_relay.job AS bigint;
COMMENT ON SEQUENCE cdc_relay.job IS 'Numbers of bulk commands: request.job.';

-- Requests about many rows at once. One row describes the job; the leader makes single requests from it, page by page and at
-- the given rate, so that asking costs the same for ten rows and for a million.
CREATE TABLE cdc_relay.bulk (
    job                bigint PRIMARY KEY DEFAULT nextval('cdc_relay.job'),
    slot               text COLLATE "C" NOT NULL,
    system_id          text COLLATE "C" NOT NULL,
    kind               text COLLATE "C" NOT NULL CHECK (kind IN ('replay', 'discard', 'redact', 'retry', 'dead_letter', 'purge')),
    filter             bytea,
    route_name         bytea,
    routing_key        bytea,
    rate               integer,
    who                text NOT NULL,
    reason             text NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    matched            bigint NOT NULL,
    asked              bigint NOT NULL DEFAULT 0,
    skipped            bigint NOT NULL DEFAULT 0,
    in_dead_letters    boolean NOT NULL,
    incarnation        bigint NOT NULL DEFAULT 0,
    commit_lsn         pg_lsn NOT NULL DEFAULT '0/0',
    idx                bigint NOT NULL DEFAULT -1,
    state              text COLLATE "C" NOT NULL DEFAULT 'asking' CHECK (state IN ('asking', 'asked', 'done', 'cancelled')),
    closed_at          timestamptz
);
CREATE INDEX bulk_open ON cdc_relay.bulk (slot, job) WHERE closed_at IS NULL;
COMMENT ON TABLE  cdc_relay.bulk IS 'Bulk jobs of operators: the leader makes rows of cdc_relay.request from them.';
COMMENT ON COLUMN cdc_relay.bulk.job                       IS 'request.job of its requests';
COMMENT ON COLUMN cdc_relay.bulk.filter                    IS 'which rows, as JSON; removed when the job is closed, because it may contain personal data';
COMMENT ON COLUMN cdc_relay.bulk.rate                      IS 'requests per second; NULL: as fast as they are carried out';
COMMENT ON COLUMN cdc_relay.bulk.reason                    IS 'why, as the operator gave it';
COMMENT ON COLUMN cdc_relay.bulk.matched                   IS 'rows that matched the filter when the job was created';
COMMENT ON COLUMN cdc_relay.bulk.asked                     IS 'requests made so far';
COMMENT ON COLUMN cdc_relay.bulk.skipped                   IS 'rows for which another request was waiting';
COMMENT ON COLUMN cdc_relay.bulk.in_dead_letters           IS 'requests are being made about dead letters, after the position below; false: about deferred rows';
COMMENT ON COLUMN cdc_relay.bulk.state                     IS 'asking: requests are being made; asked: all are made, some are waiting; done; cancelled by an operator';

CREATE TABLE cdc_relay.audit (
    seq                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at                 timestamptz NOT NULL DEFAULT now(),
    slot               text COLLATE "C" NOT NULL,
    system_id          text COLLATE "C" NOT NULL,
    who                text NOT NULL,
    action             text NOT NULL,
    n                  bigint NOT NULL,
    incarnation        bigint,
    commit_lsn         pg_lsn,
    idx                bigint,
    why                text NOT NULL,
    result             text NOT NULL,
    request            bigint
);
CREATE INDEX audit_n ON cdc_relay.audit (n);
COMMENT ON TABLE  cdc_relay.audit IS 'What was done to events: who, when, what, why. Never purged by the relay. Contains no id, key or payload, and no error text of a broker.';
COMMENT ON COLUMN cdc_relay.audit.n                        IS 'of the row it was done to (0: a job that was cancelled, or dead letters purged by age, as result says); with incarnation, commit_lsn and idx (NULL: the row was gone) the event''s position';
COMMENT ON COLUMN cdc_relay.audit.result                   IS 'the outcome';
COMMENT ON COLUMN cdc_relay.audit.request                  IS 'id of the request';
