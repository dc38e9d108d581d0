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

ALTER TABLE cdc_relay.retry       ADD COLUMN relation bigint, ADD COLUMN tx bigint;
ALTER TABLE cdc_relay.dead_letter ADD COLUMN relation bigint, ADD COLUMN tx bigint;
COMMENT ON COLUMN cdc_relay.retry.relation       IS 'OID of the row''s table as the stream named it, for cdc_relay.sent; NULL: not known';
COMMENT ON COLUMN cdc_relay.retry.tx             IS 'the transaction that wrote the row; NULL: not known';
COMMENT ON COLUMN cdc_relay.dead_letter.relation IS 'as in retry';
COMMENT ON COLUMN cdc_relay.dead_letter.tx       IS 'as in retry';
CREATE INDEX dead_letter_tx ON cdc_relay.dead_letter (tx) WHERE state = 'open'; -- retention leaves their transactions' rows
