-- A purged dead letter keeps the digest of its row: it is still known that somebody has decided about the event.
ALTER TABLE cdc_relay.dead_letter ADD COLUMN digest bigint;
COMMENT ON COLUMN cdc_relay.dead_letter.digest IS 'of a purged one the digest of transaction and id, as in sent, while its row is in the outbox; NULL: not known';
CREATE INDEX dead_letter_digest ON cdc_relay.dead_letter (slot, digest) WHERE digest IS NOT NULL;
