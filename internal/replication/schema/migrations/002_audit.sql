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
