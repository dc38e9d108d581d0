-- What a relay must remember of its slot: who leads, and how far it may have reported.
CREATE TABLE cdc_relay.slots (
    slot        name PRIMARY KEY,
    system_id   text NOT NULL,
    timeline    integer NOT NULL,
    publication text NOT NULL,
    state       text NOT NULL CHECK (state IN ('creating', 'ready', 'adopt', 'takeover')),
    incarnation bigint NOT NULL,
    epoch       bigint NOT NULL DEFAULT 0,
    leader      text NOT NULL DEFAULT '',
    sends       jsonb NOT NULL DEFAULT '{}',
    changed_at  timestamptz NOT NULL DEFAULT now(),

    took_from        text NOT NULL DEFAULT '',
    took_until       pg_lsn NOT NULL DEFAULT '0/0',
    took_incarnation bigint NOT NULL DEFAULT 0,
    grouped_by       text NOT NULL DEFAULT '',
    grouped_epoch    bigint NOT NULL DEFAULT 0,
    standbys         text[] NOT NULL DEFAULT '{}',
    other_standbys   boolean NOT NULL DEFAULT true,
    restored         boolean NOT NULL DEFAULT false,
    key_secret       uuid NOT NULL DEFAULT gen_random_uuid()
);
COMMENT ON TABLE  cdc_relay.slots IS 'One row per replication slot of a cdc-relay. Written when the slot is created or adopted, by a new leader, and when a table is added.';
COMMENT ON COLUMN cdc_relay.slots.system_id   IS 'system identifier of the cluster the slot was created in (IDENTIFY_SYSTEM)';
COMMENT ON COLUMN cdc_relay.slots.timeline    IS 'timeline of that cluster; another one means a restore or a promoted standby';
COMMENT ON COLUMN cdc_relay.slots.publication IS 'the publication the slot is read with; the positions of events depend on it';
COMMENT ON COLUMN cdc_relay.slots.state       IS 'creating: not usable yet. ready. adopt: set by an operator to accept the slot as it is now. takeover: not usable until the slot took_from has passed its start';
COMMENT ON COLUMN cdc_relay.slots.incarnation IS 'raised each time the slot is created or adopted';
COMMENT ON COLUMN cdc_relay.slots.epoch       IS 'raised by each new leader; statements of a former leader no longer match it and change nothing';
COMMENT ON COLUMN cdc_relay.slots.leader      IS 'host and process id of the current leader, for people';
COMMENT ON COLUMN cdc_relay.slots.sends       IS 'OID and version (xmin) of the publication, per table its OID, those of its memberships, and those of tables that had its name; another publication, version, table or membership means that rows were not sent for a time';
COMMENT ON COLUMN cdc_relay.slots.took_from        IS 'the slot of another program that this one replaces or has replaced; empty: none';
COMMENT ON COLUMN cdc_relay.slots.took_until       IS 'that slot''s last confirmed_flush_lsn: what was committed below it was sent by the other program and is skipped';
COMMENT ON COLUMN cdc_relay.slots.took_incarnation IS 'the incarnation of the slot that took_until belongs to; another one may be on another server';
COMMENT ON COLUMN cdc_relay.slots.grouped_by    IS 'what an ordering group was under the leader of grouped_epoch: all rows of its retry table, and its open dead letters, were grouped so; empty: unknown';
COMMENT ON COLUMN cdc_relay.slots.grouped_epoch IS 'the epoch of the leader that wrote grouped_by; if it is not the last one before a new leader''s, rows may be grouped otherwise, and are looked through';
COMMENT ON COLUMN cdc_relay.slots.standbys       IS 'physical slots that synchronized_standby_slots named while this slot was read, and that had all that was read from it';
COMMENT ON COLUMN cdc_relay.slots.other_standbys IS 'the server had, or may have had, a physical slot that standbys does not name';
COMMENT ON COLUMN cdc_relay.slots.restored IS 'the slot was used on another system: rows may have numbers of transactions of that one, as those of a restored dump have';
COMMENT ON COLUMN cdc_relay.slots.key_secret IS 'the secret under which ordering_group has keys; another one means that rows are grouped again by the next leader';

CREATE TABLE cdc_relay.progress (
    slot          name PRIMARY KEY,
    max_flush_lsn pg_lsn NOT NULL,
    reported      pg_lsn NOT NULL,
    good          pg_lsn NOT NULL,
    at            timestamptz NOT NULL DEFAULT now(),
    settled_lsn   pg_lsn,
    settled_of    bigint
);
COMMENT ON TABLE  cdc_relay.progress IS 'How far the relay of a slot may have reported. A slot above the flush limit was re-created or moved.';
COMMENT ON COLUMN cdc_relay.progress.max_flush_lsn IS 'the flush limit: no position above it was ever reported to the slot; raised durably before a report uses it';
COMMENT ON COLUMN cdc_relay.progress.reported      IS 'the position reported when the row was written last';
COMMENT ON COLUMN cdc_relay.progress.good          IS 'publication and tables were last checked and in order at this position; if a later check fails, rows after it may be missing';
COMMENT ON COLUMN cdc_relay.progress.settled_lsn IS 'every event committed below it was confirmed by the broker or has a row here that was committed before this was written; a promoted standby whose slot is not above it misses nothing; NULL: not known';
COMMENT ON COLUMN cdc_relay.progress.settled_of  IS 'the incarnation of the slot that settled_lsn is of; of another one nothing is known';

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
    left_out           text,
    relation           bigint,
    tx                 bigint,
    resend             bigint,
    error_text         text,
    PRIMARY KEY (slot, system_id, incarnation, commit_lsn, idx)
) WITH (toast_tuple_target = 128, autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_scale_factor = 0.02);
CREATE UNIQUE INDEX retry_n     ON cdc_relay.retry (n);
CREATE        INDEX retry_group ON cdc_relay.retry (slot, ordering_group, incarnation, commit_lsn, idx);
CREATE        INDEX retry_dest  ON cdc_relay.retry (slot, exchange_or_topic, dest, incarnation, commit_lsn, idx);
CREATE        INDEX retry_due   ON cdc_relay.retry (slot, next_attempt) WHERE next_attempt IS NOT NULL;
-- The id goes first: an index that begins with the slot alone is taken for reads in the order of the positions, while
-- the table is small or has no statistics.
CREATE        INDEX retry_id          ON cdc_relay.retry (substring(id, 1, 200), slot);
CREATE        INDEX retry_resend      ON cdc_relay.retry (slot, resend, n) WHERE resend IS NOT NULL;
CREATE        INDEX retry_left_out_tx ON cdc_relay.retry (tx) WHERE left_out IS NOT NULL; -- retention: these copies have not all values
CREATE        INDEX retry_no_exchange ON cdc_relay.retry (slot, exchange_or_topic) WHERE reason = 'no_exchange'; -- a new leader asks which were missing
COMMENT ON TABLE  cdc_relay.retry IS 'Deferred events: refused ones, those behind them in their ordering group, and those whose destination is paused. Rows of another slot or system_id (a copy of the database) are not touched.';
COMMENT ON COLUMN cdc_relay.retry.system_id                IS 'of the cluster the event was committed in; in a copy of the database such rows belong to another system and are not sent';
COMMENT ON COLUMN cdc_relay.retry.incarnation              IS 'of the slot the event was read from; with commit_lsn and idx its position';
COMMENT ON COLUMN cdc_relay.retry.commit_lsn               IS 'commit LSN of the transaction';
COMMENT ON COLUMN cdc_relay.retry.idx                      IS 'index of the event in its transaction';
COMMENT ON COLUMN cdc_relay.retry.n                        IS 'the row''s number: its version for the relay, its name for people; kept when it becomes a dead letter';
COMMENT ON COLUMN cdc_relay.retry.ordering_group           IS 'digest of the ordering group, whose rows are sent in order of position: of hash and exchange or topic (delivery.ordering commit: of exchange or topic alone; none: of position and exchange or topic)';
COMMENT ON COLUMN cdc_relay.retry.exchange_or_topic        IS 'digest of the exchange or topic';
COMMENT ON COLUMN cdc_relay.retry.dest                     IS 'digest of exchange and routing key, or of topic and partition';
COMMENT ON COLUMN cdc_relay.retry.hash                     IS 'digest of aggregate and key, under the secret of the slot; of the position when the event has no key';
COMMENT ON COLUMN cdc_relay.retry.keyed                    IS 'the event has an ordering key';
COMMENT ON COLUMN cdc_relay.retry.ordered                  IS 'later events of its ordering group wait for it';
COMMENT ON COLUMN cdc_relay.retry.attempts                 IS 'refusals that count against retry.max_attempts';
COMMENT ON COLUMN cdc_relay.retry.bytes                    IS 'size of the event';
COMMENT ON COLUMN cdc_relay.retry.next_attempt             IS 'when the first row of an ordering group is tried again, if it was refused; NULL: as soon as its destination is no longer paused';
COMMENT ON COLUMN cdc_relay.retry.class                    IS 'of the last refusal: destination, transient, permanent; empty: it was never refused';
COMMENT ON COLUMN cdc_relay.retry.reason                   IS 'of the last refusal, as in cdc_relay_rejections_total';
COMMENT ON COLUMN cdc_relay.retry.error                    IS 'error text of the last refusal, with # for each number and UUID, so that equal faults have equal texts: an index is on it; empty: it was never refused';
COMMENT ON COLUMN cdc_relay.retry.destination              IS 'what the last refusal was about, or where the event was going';
COMMENT ON COLUMN cdc_relay.retry.route_name               IS 'exchange or topic it goes to, decided when it was deferred; NULL: the template had no value';
COMMENT ON COLUMN cdc_relay.retry.routing_key              IS 'routing key it goes with';
COMMENT ON COLUMN cdc_relay.retry.event_time               IS 'the timestamp column, else commit_time';
COMMENT ON COLUMN cdc_relay.retry.payload_kind             IS '0 json, 1 text, 2 bytea';
COMMENT ON COLUMN cdc_relay.retry.columns                  IS 'extra columns: per column the length of its name, the name, the length of its value + 1 (0: NULL), the value; lengths as unsigned LEB128';
COMMENT ON COLUMN cdc_relay.retry.fault                    IS 'why the row of the outbox could not be relayed as configured';
COMMENT ON COLUMN cdc_relay.retry.raw                      IS 'with fault: the whole row';
COMMENT ON COLUMN cdc_relay.retry.left_out                 IS 'the outbox table, as schema.name, whose row has values that are left out here, because it is larger than source.max_event_bytes; empty: it was a logical message; NULL: nothing is left out';
COMMENT ON COLUMN cdc_relay.retry.relation                 IS 'OID of the row''s table as the stream named it, for cdc_relay.sent; NULL: not known';
COMMENT ON COLUMN cdc_relay.retry.tx                       IS 'the transaction that wrote the row; NULL: not known';
COMMENT ON COLUMN cdc_relay.retry.resend                   IS 'bulk.job of the resend that copied the row; its position is none of the WAL, its ordering group is that job''s alone. NULL: it was deferred, or recovered';
COMMENT ON COLUMN cdc_relay.retry.error_text               IS 'error text of the last refusal as the broker gave it, which people read; NULL: error has all of it, or it is not kept';

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
    left_out           text,
    relation           bigint,
    tx                 bigint,
    resend             bigint,
    error_text         text,
    digest             bigint,
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
CREATE        INDEX dead_letter_tx          ON cdc_relay.dead_letter (tx) WHERE state = 'open'; -- retention leaves their transactions' rows
CREATE        INDEX dead_letter_resend      ON cdc_relay.dead_letter (resend) WHERE resend IS NOT NULL;
CREATE        INDEX dead_letter_digest      ON cdc_relay.dead_letter (slot, digest) WHERE digest IS NOT NULL;
COMMENT ON TABLE  cdc_relay.dead_letter IS 'Events that the relay gave up on. Columns with a name from retry have the same meaning.';
COMMENT ON COLUMN cdc_relay.dead_letter.deferred_at        IS 'when the event was deferred';
COMMENT ON COLUMN cdc_relay.dead_letter.died_at            IS 'when it became a dead letter';
COMMENT ON COLUMN cdc_relay.dead_letter.closed_at          IS 'when it was replayed, discarded or purged';
COMMENT ON COLUMN cdc_relay.dead_letter.mirrored_at        IS 'when the mirror''s broker confirmed it';
COMMENT ON COLUMN cdc_relay.dead_letter.redacted_at        IS 'when its contents were removed; it cannot be replayed any more';
COMMENT ON COLUMN cdc_relay.dead_letter.left_out           IS 'as in retry; a replay reads the row from that table';
COMMENT ON COLUMN cdc_relay.dead_letter.digest             IS 'of a purged one the digest of transaction and id, as in sent, while its row is in the outbox; NULL: not known';
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
    done_at            timestamptz,
    begun_epoch        bigint,
    CONSTRAINT request_lengths CHECK (char_length(reason) <= 1000 AND octet_length(route_name) <= 1024 AND octet_length(routing_key) <= 1024)
);
CREATE UNIQUE INDEX request_target  ON cdc_relay.request (slot, system_id, n) WHERE state = 'waiting';
CREATE        INDEX request_waiting ON cdc_relay.request (slot, id) WHERE state = 'waiting';
CREATE        INDEX request_n       ON cdc_relay.request (n, id DESC);
CREATE        INDEX request_job     ON cdc_relay.request (job, state);
CREATE        INDEX request_done    ON cdc_relay.request (slot, done_at) WHERE state <> 'waiting';
COMMENT ON TABLE  cdc_relay.request IS 'Requests of operators, which the leader carries out. At most one request per row is waiting. What operators write has a length, because the leader reads it.';
COMMENT ON COLUMN cdc_relay.request.kind                   IS 'replay, discard, redact: a dead letter; retry, dead_letter: a row of retry; purge: either';
COMMENT ON COLUMN cdc_relay.request.n                      IS 'of the row it is about';
COMMENT ON COLUMN cdc_relay.request.route_name             IS 'of replay: exchange or topic to send it to; NULL: where it was going';
COMMENT ON COLUMN cdc_relay.request.routing_key            IS 'of replay: routing key to send it with; NULL: the dead letter''s';
COMMENT ON COLUMN cdc_relay.request.reason                 IS 'why, as the operator gave it';
COMMENT ON COLUMN cdc_relay.request.job                    IS 'common to the requests of one bulk command; from the sequence job';
COMMENT ON COLUMN cdc_relay.request.state                  IS 'waiting; done; failed: result says why; cancelled by an operator while it waited';
-- A replay of a row over source.max_event_bytes reads all of it into memory: a relay that is killed by that must not be killed again by
-- the same request.
COMMENT ON COLUMN cdc_relay.request.begun_epoch            IS 'of a replay that reads the row from the outbox table: the epoch of the leader that began to; NULL: none did';

CREATE SEQUENCE cdc_relay.job AS bigint;
COMMENT ON SEQUENCE cdc_relay.job IS 'Numbers of bulk commands: request.job.';

-- Requests about many rows at once. One row describes the job; the leader makes single requests from it, page by page and at
-- the given rate, so that asking costs the same for ten rows and for a million.
CREATE TABLE cdc_relay.bulk (
    job                bigint PRIMARY KEY DEFAULT nextval('cdc_relay.job'),
    slot               text COLLATE "C" NOT NULL,
    system_id          text COLLATE "C" NOT NULL,
    kind               text COLLATE "C" NOT NULL CHECK (kind IN ('replay', 'discard', 'redact', 'retry', 'dead_letter', 'purge', 'resend')),
    filter             bytea,
    condition          text,
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
    state              text COLLATE "C" NOT NULL DEFAULT 'asking' CHECK (state IN ('asking', 'asked', 'sending', 'done', 'cancelled', 'failed')),
    closed_at          timestamptz,
    removed            bigint NOT NULL DEFAULT 0,
    result             text NOT NULL DEFAULT '',
    CONSTRAINT bulk_lengths CHECK (char_length(reason) <= 1000 AND octet_length(route_name) <= 1024 AND octet_length(routing_key) <= 1024
        AND octet_length(filter) <= 2097152 AND octet_length(condition) <= 131072)
);
CREATE INDEX bulk_open ON cdc_relay.bulk (slot, job) WHERE closed_at IS NULL;
CREATE UNIQUE INDEX bulk_resend ON cdc_relay.bulk (slot) WHERE kind = 'resend' AND state = 'asking'; -- one copy at a time
COMMENT ON TABLE  cdc_relay.bulk IS 'Bulk jobs of operators: the leader makes rows of cdc_relay.request from them.';
COMMENT ON COLUMN cdc_relay.bulk.job                       IS 'request.job of its requests';
COMMENT ON COLUMN cdc_relay.bulk.filter                    IS 'which rows, as JSON; removed when the job is closed, because it may contain personal data';
COMMENT ON COLUMN cdc_relay.bulk.rate                      IS 'requests per second; NULL: as fast as they are carried out';
COMMENT ON COLUMN cdc_relay.bulk.reason                    IS 'why, as the operator gave it';
COMMENT ON COLUMN cdc_relay.bulk.matched                   IS 'rows that matched the filter when the job was created';
COMMENT ON COLUMN cdc_relay.bulk.asked                     IS 'requests made so far';
COMMENT ON COLUMN cdc_relay.bulk.skipped                   IS 'rows for which another request was waiting';
COMMENT ON COLUMN cdc_relay.bulk.in_dead_letters           IS 'requests are being made about dead letters, after the position below; false: about deferred rows';
COMMENT ON COLUMN cdc_relay.bulk.state                     IS 'asking: requests are being made, or rows copied; asked: all are made, some are waiting; sending: a resend has copied its rows; done; cancelled by an operator; failed: a resend, result says why';
-- An operator's role may not write condition: it is SQL, which runs with the relay's rights.
COMMENT ON COLUMN cdc_relay.bulk.kind                      IS 'resend: rows of the outbox tables, which are copied into retry and not requested one by one; asked counts the copies, skipped those that waited already';
COMMENT ON COLUMN cdc_relay.bulk.condition                 IS 'of resend: an SQL condition on rows of the outbox tables; removed with filter';
COMMENT ON COLUMN cdc_relay.bulk.removed                   IS 'of a resend that was cancelled: copies that were taken back';
COMMENT ON COLUMN cdc_relay.bulk.result                    IS 'of resend: why it failed, or what became of it when it was cancelled';

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
COMMENT ON COLUMN cdc_relay.audit.n                        IS 'of the row it was done to (0: a job that was cancelled, or dead letters purged by age, as result says); with incarnation, commit_lsn and idx (NULL: the row was gone) the event''s position';
COMMENT ON COLUMN cdc_relay.audit.result                   IS 'the outcome';
COMMENT ON COLUMN cdc_relay.audit.request                  IS 'id of the request';

-- What accept, recover and resend need: which rows an operator accepted as missing.
CREATE TABLE cdc_relay.gap (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot         text COLLATE "C" NOT NULL,
    system_id    text COLLATE "C" NOT NULL,
    incarnation  bigint NOT NULL,
    finding      text NOT NULL,
    reason       text NOT NULL,
    from_lsn     pg_lsn,
    until_lsn    pg_lsn,
    until_xid    xid8,
    accepted_at  timestamptz NOT NULL DEFAULT now(),
    recovered_at timestamptz,
    job          bigint
);
CREATE INDEX gap_open ON cdc_relay.gap (slot, id) WHERE recovered_at IS NULL;
COMMENT ON TABLE  cdc_relay.gap IS 'Intervals that an operator accepted as missing (cdc-relay accept), for cdc-relay recover.';
COMMENT ON COLUMN cdc_relay.gap.system_id    IS 'of the cluster in which the rows were committed';
COMMENT ON COLUMN cdc_relay.gap.incarnation  IS 'of the slot before the gap: its events come before the gap, and those of a higher incarnation after it';
COMMENT ON COLUMN cdc_relay.gap.finding      IS 'the ID that was accepted';
COMMENT ON COLUMN cdc_relay.gap.from_lsn     IS 'what was committed before is settled; NULL: not known';
COMMENT ON COLUMN cdc_relay.gap.until_lsn    IS 'the slot sends what was committed from here on; NULL: it was not used yet';
COMMENT ON COLUMN cdc_relay.gap.until_xid    IS 'the slot sends every transaction with this id or a higher one; NULL: it was not used yet';
COMMENT ON COLUMN cdc_relay.gap.recovered_at IS 'when recover copied its rows into the retry table';
COMMENT ON COLUMN cdc_relay.gap.job        IS 'bulk.job of the resend that copied its rows: it is open again if they are taken back';

-- The sent set: which rows of the outbox tables the broker has confirmed. Only the leader of a slot writes its rows.
CREATE TABLE cdc_relay.sent (
    slot     text COLLATE "C" NOT NULL,
    relation oid NOT NULL,
    chunk    bigint NOT NULL,
    n        bigint GENERATED ALWAYS AS IDENTITY,
    first_tx bigint NOT NULL,
    last_tx  bigint NOT NULL,
    digests  bigint[] NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (slot, relation, chunk, n)
);
CREATE INDEX sent_at ON cdc_relay.sent (slot, at, n);
ALTER TABLE cdc_relay.sent ALTER COLUMN digests SET STORAGE EXTERNAL; -- digests do not compress
COMMENT ON TABLE  cdc_relay.sent IS 'Which outbox rows were delivered: a row whose digest is here was confirmed by the broker. Of all others nothing is known. Rows go when the outbox rows have gone.';
COMMENT ON COLUMN cdc_relay.sent.relation IS 'OID of the table as the stream names it: the outbox table, or one of its partitions';
COMMENT ON COLUMN cdc_relay.sent.chunk    IS 'the transactions from chunk * 8192 on, 8192 of them, with their epoch';
COMMENT ON COLUMN cdc_relay.sent.first_tx IS 'the lowest transaction in it; last_tx: the highest';
COMMENT ON COLUMN cdc_relay.sent.digests  IS 'of each row the first 64 bits of sha256(transaction || ''/'' || id)';
COMMENT ON COLUMN cdc_relay.sent.at       IS 'when the last of them was recorded, moments after the confirm';
