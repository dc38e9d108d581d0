-- What the role relay of 01-roles.sql runs under: exactly what this prints, and a test compares them:
--
--   cdc-relay init --print --outbox-table --role relay

SET search_path = pg_catalog;

CREATE TABLE IF NOT EXISTS "public"."outbox" (
    id            uuid PRIMARY KEY,
    aggregatetype text NOT NULL,
    aggregateid   text NOT NULL,
    type          text NOT NULL,
    payload       jsonb,
    headers       jsonb,
    traceparent   text,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    "tx"          xid8 DEFAULT pg_catalog.pg_current_xact_id()
);
DO $do$ DECLARE thing text; stranger text; BEGIN
    SELECT * INTO thing, stranger FROM (
WITH RECURSIVE trusted AS (SELECT oid FROM pg_roles WHERE rolsuper OR rolname IN (current_user, session_user, 'relay')),
used (classid, objid) AS (
    SELECT 'pg_class'::regclass::oid, to_regclass('"public"."outbox"')::oid
    UNION ALL SELECT 'pg_event_trigger'::regclass, oid FROM pg_event_trigger WHERE evtenabled <> 'D'
    UNION SELECT n.* FROM used u CROSS JOIN LATERAL (
        SELECT refclassid, refobjid FROM pg_depend WHERE classid = u.classid AND objid = u.objid AND deptype <> 'e'
        UNION ALL SELECT k.* FROM (SELECT u.objid WHERE u.classid = 'pg_class'::regclass) c (oid) CROSS JOIN LATERAL (
            SELECT 'pg_trigger'::regclass::oid, oid FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal
            UNION ALL SELECT 'pg_rewrite'::regclass, oid FROM pg_rewrite WHERE ev_class = c.oid
            UNION ALL SELECT 'pg_policy'::regclass, oid FROM pg_policy WHERE polrelid = c.oid
            UNION ALL SELECT 'pg_attrdef'::regclass, oid FROM pg_attrdef WHERE adrelid = c.oid
            UNION ALL SELECT 'pg_constraint'::regclass, oid FROM pg_constraint WHERE conrelid = c.oid AND contype <> 'f'
            UNION ALL SELECT 'pg_statistic_ext'::regclass, oid FROM pg_statistic_ext WHERE stxrelid = c.oid
            UNION ALL SELECT 'pg_class'::regclass, indexrelid FROM pg_index WHERE indrelid = c.oid
            UNION ALL SELECT 'pg_class'::regclass, unnest(ARRAY[inhrelid, inhparent]) FROM pg_inherits WHERE c.oid IN (inhrelid, inhparent)) k
        UNION ALL SELECT 'pg_constraint'::regclass, oid FROM pg_constraint WHERE u.classid = 'pg_type'::regclass AND contypid = u.objid
        UNION ALL SELECT 'pg_class'::regclass, typrelid FROM pg_type WHERE u.classid = 'pg_type'::regclass AND oid = u.objid AND typrelid <> 0) n),
owned (classid, objid, owner) AS (
    SELECT 'pg_class'::regclass::oid, oid, relowner FROM pg_class
    UNION ALL SELECT 'pg_proc'::regclass, oid, proowner FROM pg_proc
    UNION ALL SELECT 'pg_type'::regclass, oid, typowner FROM pg_type
    UNION ALL SELECT 'pg_operator'::regclass, oid, oprowner FROM pg_operator
    UNION ALL SELECT 'pg_opclass'::regclass, oid, opcowner FROM pg_opclass
    UNION ALL SELECT 'pg_opfamily'::regclass, oid, opfowner FROM pg_opfamily
    UNION ALL SELECT 'pg_collation'::regclass, oid, collowner FROM pg_collation
    UNION ALL SELECT 'pg_statistic_ext'::regclass, oid, stxowner FROM pg_statistic_ext
    UNION ALL SELECT 'pg_event_trigger'::regclass, oid, evtowner FROM pg_event_trigger)
SELECT pg_describe_object(classid, objid, 0), pg_get_userbyid(owner)::text FROM used JOIN owned USING (classid, objid)
WHERE owner NOT IN (SELECT oid FROM trusted) ORDER BY objid <> to_regclass('"public"."outbox"'), 1 LIMIT 1) f;
    IF FOUND THEN
        RAISE EXCEPTION 'table % is not used: % belongs to role %', 'public.outbox', thing, stranger USING HINT = 'find out who made it: it could run code as whoever inserts. Then drop it, or run init with --url of that role, or without --outbox-table if the role is to be trusted';
    END IF;
END $do$;
DO $do$ BEGIN
    IF EXISTS (SELECT FROM pg_attribute JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
            WHERE attrelid = '"public"."outbox"'::regclass AND attname = 'tx' AND atttypid = 'xid8'::regtype
                AND pg_get_expr(adbin, adrelid) LIKE '%pg_current_xact_id()%')
        AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = '"public"."outbox"'::regclass AND tgname = 'zz_cdc_relay_tx')
    THEN
        IF NOT EXISTS (SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
                WHERE indrelid = '"public"."outbox"'::regclass AND attname = 'tx' AND indpred IS NULL)
        THEN
            CREATE INDEX ON "public"."outbox" ("tx");
        END IF;
        CREATE OR REPLACE FUNCTION "public"."cdc_relay_outbox_set_tx"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW."tx" := pg_catalog.pg_current_xact_id(); RETURN NEW; END $$;
        ALTER FUNCTION "public"."cdc_relay_outbox_set_tx"() OWNER TO CURRENT_USER;
        CREATE OR REPLACE TRIGGER "zz_cdc_relay_tx" BEFORE INSERT ON "public"."outbox" FOR EACH ROW WHEN (NEW."tx" IS DISTINCT FROM pg_catalog.pg_current_xact_id()) EXECUTE FUNCTION "public"."cdc_relay_outbox_set_tx"();
        ALTER TABLE "public"."outbox" ENABLE ALWAYS TRIGGER "zz_cdc_relay_tx";
    END IF;
END $do$;

-- The role that owns the schema cdc_relay, here and in every database of the cluster. Nobody logs in as it.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'cdc_relay_owner') THEN
        BEGIN CREATE ROLE cdc_relay_owner NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END; -- another database's did
    END IF;
    IF NOT pg_has_role(session_user, 'cdc_relay_owner', CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
        EXECUTE 'GRANT cdc_relay_owner TO SESSION_USER'
            || CASE WHEN current_setting('server_version_num')::int >= 160000 THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END;
    END IF;
END $$;

BEGIN;
CREATE SCHEMA cdc_relay AUTHORIZATION cdc_relay_owner;
SET LOCAL ROLE cdc_relay_owner;
CREATE TABLE IF NOT EXISTS cdc_relay.migration (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());
COMMENT ON TABLE cdc_relay.migration IS 'Which steps of this schema were applied, and when.';

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
INSERT INTO cdc_relay.migration (version) VALUES (1);

-- Who asked is the session user of the database unless the relay says otherwise: operators may not write these columns.
ALTER TABLE cdc_relay.request ALTER COLUMN who SET DEFAULT session_user;
ALTER TABLE cdc_relay.bulk    ALTER COLUMN who SET DEFAULT session_user;
ALTER TABLE cdc_relay.audit   ALTER COLUMN who SET DEFAULT session_user;
COMMENT ON COLUMN cdc_relay.request.who IS 'the session user of the database; for the API the name that the relay gives: the token''s, or the socket''s user';
COMMENT ON COLUMN cdc_relay.bulk.who    IS 'as request.who';
COMMENT ON COLUMN cdc_relay.audit.who   IS 'as request.who; (the relay): what it does by itself';
COMMENT ON TABLE  cdc_relay.audit       IS 'What was done to events: who, when, what, why. Only prune_audit removes from it. Contains no id, key or payload, and no error text of a broker.';

-- What an operator may change is a function's: it runs as the schema's owner, so its caller needs no right to UPDATE a request
-- or to INSERT into the audit, and session_user is still who logged in. pg_temp is searched last: a caller's temporary
-- tables and types are not found in the place of others.
CREATE FUNCTION cdc_relay.cancel_request(id bigint, slot text, reason text) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH q AS (UPDATE cdc_relay.request r SET state = 'cancelled', done_at = now()
            WHERE r.id = $1 AND r.slot = $2 AND r.state = 'waiting' RETURNING r.id, r.slot, r.system_id, r.n, r.kind),
        noted AS (INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result, request)
            SELECT q.slot, q.system_id, session_user, 'cancel', q.n, coalesce($3, ''), q.kind || ' is not done', q.id FROM q)
    SELECT EXISTS (SELECT FROM q)
$$;
COMMENT ON FUNCTION cdc_relay.cancel_request IS 'Cancels a request that waits, and notes that in the audit. false: it does not wait.';

-- Two statements, each with a snapshot of its own, as PL/pgSQL gives them: the second one must see the requests that the leader
-- made before the first one took the job from it.
CREATE FUNCTION cdc_relay.cancel_job(job bigint, slot text, reason text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    cancelled boolean;
BEGIN
    WITH j AS (UPDATE cdc_relay.bulk b SET state = 'cancelled', closed_at = now(), filter = NULL
            WHERE b.job = $1 AND b.slot = $2 AND b.closed_at IS NULL RETURNING b.slot, b.system_id, b.job)
    INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result)
        SELECT j.slot, j.system_id, session_user, 'cancel', 0, coalesce($3, ''), 'job ' || j.job FROM j;
    cancelled := FOUND;
    UPDATE cdc_relay.request r SET state = 'cancelled', done_at = now()
        WHERE r.job = $1 AND r.slot = $2 AND r.state = 'waiting' AND EXISTS (SELECT FROM cdc_relay.bulk b WHERE b.job = $1 AND b.state = 'cancelled');
    RETURN cancelled;
END
$$;
COMMENT ON FUNCTION cdc_relay.cancel_job IS 'Cancels a bulk job that is not closed, with its requests that wait, and notes that in the audit. false: it was closed.';

-- The bound is compared as a time: intervals of months and days compare as equal ('-100 years 36030 days' is 30 days) and
-- reach far into the future.
CREATE FUNCTION cdc_relay.prune_audit(older_than interval) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    until  timestamptz := now() - $1;
    pruned bigint;
BEGIN
    IF until IS NULL OR until > now() - interval '30 days' THEN
        RAISE EXCEPTION 'the audit is kept for 30 days at least: prune_audit(''30 days'') or more' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    DELETE FROM cdc_relay.audit a WHERE a.at < until;
    GET DIAGNOSTICS pruned = ROW_COUNT;
    INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result)
        VALUES ('', '', session_user, 'prune', 0, 'older than ' || $1,
            pruned || ' entries before ' || to_char(until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'));
    RETURN pruned;
END
$$;
COMMENT ON FUNCTION cdc_relay.prune_audit IS 'Removes what is older from the audit, of all slots, and notes that in it. For the owner of the schema alone.';

REVOKE ALL ON FUNCTION cdc_relay.cancel_request(bigint, text, text), cdc_relay.cancel_job(bigint, text, text), cdc_relay.prune_audit(interval) FROM PUBLIC;
INSERT INTO cdc_relay.migration (version) VALUES (2);

GRANT USAGE ON SCHEMA cdc_relay TO "relay";
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA cdc_relay TO "relay";
GRANT TRUNCATE ON cdc_relay.retry TO "relay";
GRANT USAGE ON ALL SEQUENCES IN SCHEMA cdc_relay TO "relay";
GRANT EXECUTE ON FUNCTION cdc_relay.cancel_request(bigint, text, text), cdc_relay.cancel_job(bigint, text, text) TO "relay";
REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON cdc_relay.audit FROM "relay";
GRANT INSERT (slot, system_id, who, action, n, incarnation, commit_lsn, idx, why, result, request) ON cdc_relay.audit TO "relay";
REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON cdc_relay.migration FROM "relay";
COMMIT;

ALTER ROLE "relay" REPLICATION;
GRANT USAGE ON SCHEMA "public" TO "relay";
GRANT SELECT ON "public"."outbox" TO "relay";

-- The publication must exist before the slot. One that exists belongs to somebody else and gets no comment.
BEGIN;
CREATE PUBLICATION "cdc_relay" FOR TABLE ONLY "public"."outbox" WITH (publish = 'insert', publish_via_partition_root = true);
COMMENT ON PUBLICATION "cdc_relay" IS 'Made by cdc-relay, whose teardown drops it.';
COMMIT;

-- A slot created by hand is adopted as it is: rows committed before it are not sent, and nothing checks for them. The row
-- records that this is accepted. It is written only for a slot that is newer than the publication.
SELECT set_config('cdc_relay.published', pg_current_wal_insert_lsn()::text, false);
SELECT pg_create_logical_replication_slot('cdc_relay', 'pgoutput');
BEGIN;
SET LOCAL ROLE cdc_relay_owner;
INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation)
SELECT slot_name, '', 0, 'cdc_relay', 'adopt', 0 FROM pg_replication_slots
WHERE slot_name = 'cdc_relay' AND active_pid IS NULL AND confirmed_flush_lsn >= current_setting('cdc_relay.published')::pg_lsn;
COMMIT;

RESET search_path;
