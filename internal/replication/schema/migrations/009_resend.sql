-- resend: rows of the outbox tables that an operator has sent again. The leader copies them into retry.
ALTER TABLE cdc_relay.retry       ADD COLUMN resend bigint;
ALTER TABLE cdc_relay.dead_letter ADD COLUMN resend bigint;
COMMENT ON COLUMN cdc_relay.retry.resend       IS 'bulk.job of the resend that copied the row; its position is none of the WAL, its ordering group is that job''s alone. NULL: it was deferred, or recovered';
COMMENT ON COLUMN cdc_relay.dead_letter.resend IS 'as in retry';
CREATE INDEX retry_resend       ON cdc_relay.retry (slot, resend, n) WHERE resend IS NOT NULL;
CREATE INDEX dead_letter_resend ON cdc_relay.dead_letter (resend) WHERE resend IS NOT NULL;

-- An operator's role may not write condition: it is SQL, which runs with the relay's rights.
ALTER TABLE cdc_relay.bulk
    ADD COLUMN condition text,
    ADD COLUMN removed   bigint NOT NULL DEFAULT 0,
    ADD COLUMN result    text NOT NULL DEFAULT '',
    DROP CONSTRAINT bulk_kind_check,
    ADD CONSTRAINT bulk_kind_check CHECK (kind IN ('replay', 'discard', 'redact', 'retry', 'dead_letter', 'purge', 'resend')),
    DROP CONSTRAINT bulk_state_check,
    ADD CONSTRAINT bulk_state_check CHECK (state IN ('asking', 'asked', 'sending', 'done', 'cancelled', 'failed'));
CREATE UNIQUE INDEX bulk_resend ON cdc_relay.bulk (slot) WHERE kind = 'resend' AND state = 'asking'; -- one copy at a time
ALTER TABLE cdc_relay.gap ADD COLUMN job bigint;
COMMENT ON COLUMN cdc_relay.gap.job        IS 'bulk.job of the resend that copied its rows: it is open again if they are taken back';
COMMENT ON COLUMN cdc_relay.bulk.kind      IS 'resend: rows of the outbox tables, which are copied into retry and not requested one by one; asked counts the copies, skipped those that waited already';
COMMENT ON COLUMN cdc_relay.bulk.condition IS 'of resend: an SQL condition on rows of the outbox tables; removed with filter';
COMMENT ON COLUMN cdc_relay.bulk.removed   IS 'of a resend that was cancelled: copies that were taken back';
ALTER TABLE cdc_relay.slots ADD COLUMN restored boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN cdc_relay.slots.restored IS 'the slot was used on another system: rows may have numbers of transactions of that one, as those of a restored dump have';
COMMENT ON COLUMN cdc_relay.bulk.result    IS 'of resend: why it failed, or what became of it when it was cancelled';
