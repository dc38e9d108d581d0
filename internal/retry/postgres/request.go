// WaitingRequests and AnswerRequests read and carry out operators' requests. ExpireDeadLetters
// purges by age.

package postgres

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// allowedSQL is the condition under which the state of a row t of dead_letter allows the request q.
const allowedSQL = `(q.kind = 'replay' AND t.state = 'open' AND t.redacted_at IS NULL OR q.kind = 'discard' AND t.state = 'open'
	OR q.kind IN ('redact', 'purge') AND t.state <> 'purged')`

// lightBytes bounds what is read for requests that send nothing. A key may be as large as a row.
const lightBytes = 4 << 20

// sizesSQL are the bytes of a row t: as a whole, and without its heavy columns. A request that
// sends nothing reads it without them.
var sizesSQL = `t.bytes AS size, ` + octetsSQL("t.id", "t.aggregate", "t.key", "t.type", "t.route_name", "t.routing_key", "t.traceparent", "t.fault") + ` AS light`

// octetsSQL is SQL for the bytes in some columns. The server knows them without reading the values.
func octetsSQL(columns ...string) string {
	return "coalesce(octet_length(" + strings.Join(columns, "), 0) + coalesce(octet_length(") + "), 0)"
}

var requestsSQL = readFence + `, q AS MATERIALIZED (SELECT q.* FROM fence, cdc_relay.request q
			WHERE q.slot = $1 AND q.system_id = $3 AND q.state = 'waiting' ORDER BY q.kind = 'replay', q.id LIMIT $4),
		rows AS MATERIALIZED (
			SELECT q.id AS request, true AS dead, t.n AS found, ` + sizesSQL + ` FROM q JOIN cdc_relay.dead_letter t ON t.n = q.n AND ` + byNumberSQL("t") + ` AND ` + allowedSQL + `
			UNION ALL SELECT q.id, false AS dead, t.n, ` + sizesSQL + ` FROM q JOIN cdc_relay.retry t ON t.n = q.n AND ` + byNumberSQL("t") + ` AND q.kind IN ('retry', 'dead_letter', 'purge')),
		sized AS (SELECT q.*, r.dead, r.found, sum(z.size) OVER w - z.size AS before, sum(z.light) OVER w - z.light AS lighter FROM q LEFT JOIN rows r ON r.request = q.id
			CROSS JOIN LATERAL (SELECT CASE WHEN q.kind = 'replay' AND $5::bigint > 0 THEN coalesce(r.size, 0) ELSE 0 END AS size, coalesce(r.light, 0) AS light) z
			WINDOW w AS (ORDER BY q.kind = 'replay', q.id))
		SELECT s.id, s.kind, s.route_name, s.routing_key, coalesce(s.begun_epoch, 0), s.found IS NOT NULL, s.dead, t.*
		FROM fence LEFT JOIN (sized s LEFT JOIN LATERAL (
			SELECT ` + rowExpressions("t", true, "s.kind = 'replay' AND $5::bigint > 0 AND t.bytes <= $6") + ` FROM cdc_relay.dead_letter t WHERE s.dead AND t.n = s.found
			UNION ALL SELECT ` + rowExpressions("t", false, "false") + ` FROM cdc_relay.retry t WHERE NOT s.dead AND t.n = s.found) t ON true)
			ON (s.before = 0 OR s.before < $5) AND s.lighter < ` + strconv.Itoa(lightBytes) + `
		ORDER BY s.kind = 'replay', s.id`

const anyRequestSQL = readFence + ` SELECT EXISTS (SELECT FROM cdc_relay.request q WHERE q.slot = $1 AND q.system_id = $3 AND q.state = 'waiting') FROM fence`

// WaitingRequests implements Store. It checks first whether there are any: most of the time there
// are none, and planning requestsSQL costs the server thirty times as much.
func (p *Store) WaitingRequests(ctx context.Context, limit int, size int64) (list []store.Request, err error) {
	some := false
	err = p.runRead(ctx, "check for requests", anyRequestSQL, []any{p.cfg.SystemID}, func(rows pgx.Rows) error { return rows.Scan(&some) })
	if err != nil || !some {
		return nil, err
	}
	err = p.runRead(ctx, "read requests", requestsSQL, []any{p.cfg.SystemID, limit, size, p.limits.largeFrom}, func(rows pgx.Rows) error {
		var (
			q     store.Request
			kind  string
			found bool
			dead  *bool
		)
		skip := make([]any, len(rows.RawValues()))
		head := []any{&q.ID, &kind, &q.Route.Name, &q.Route.RoutingKey, &q.Begun, &found, &dead}
		copy(skip, head)
		if err := rows.Scan(skip...); err != nil {
			return err
		}
		q.Kind = store.RequestKind(kind)
		if found {
			row, err := p.scanRow(rows, make([]any, len(head))...)
			if err != nil {
				return &store.Refused{Err: err}
			}
			row.Dead, q.Row = *dead, row
		}
		list = append(list, q)
		return nil
	})
	for i := range list {
		if q := &list[i]; err == nil && size > 0 && q.Kind == store.Replay && q.Row != nil && p.limits.isLarge(q.Row.Bytes) {
			if q.Row, err = p.readLarge(ctx, q.Row); q.Row != nil {
				q.Row.Dead = true
			}
		}
	}
	return list, refusedIfDamaged(err)
}

// beginReplaySQL does nothing to a request that was answered meanwhile: so it may be carried out
// late, or twice.
const beginReplaySQL = writeFence + `, begun AS (UPDATE cdc_relay.request q SET begun_epoch = $2 FROM fence
			WHERE q.id = $4 AND q.slot = $1 AND q.system_id = $3 AND q.state = 'waiting')
		SELECT NULL FROM fence`

// BeginReplay implements Store.
func (p *Store) BeginReplay(ctx context.Context, request int64) error {
	return p.runWrite(ctx, "begin a replay", beginReplaySQL, func(storable) []any { return []any{p.cfg.SystemID, request} }, nil)
}

// purgesSQL is the condition that a request of answerSQL empties its row.
const purgesSQL = `q.x_verdict = 'carry out' AND q.kind = 'purge'`

// answerArrays are the parameters of answerSQL.
func answerArrays(answers []store.Answer, as storable) (a arrays) {
	a.add("x_request", "bigint", valuesOf(answers, func(a store.Answer) int64 { return a.Request.ID }))
	a.add("x_verdict", "text", valuesOf(answers, func(a store.Answer) string { return string(a.Verdict()) }))
	a.add("x_said", "text", valuesOf(answers, func(a store.Answer) string {
		if a.Verdict() != store.VerdictRefused {
			return ""
		}
		return as(store.RefusalText(&a))
	}))
	a.addNames(valuesOf(answers, func(a store.Answer) *store.Row { return cmp.Or(a.Request.Row, &store.Row{}) }))
	a.addRefusals(valuesOf(answers, func(a store.Answer) store.Result { return a.Result() }), as)
	return a
}

// rowDigest is the digest of a row t in the sent set: a purged row keeps it in place of the id. It
// is NULL if the row's transaction is not known.
var rowDigest = sent.DigestSQL("t.tx", "t.id")

// purgedValues are the columns of a purged row. The position stays, and so do columns that tell
// nothing about the event.
var purgedValues = map[string]string{
	"ordering_group": "0", "exchange_or_topic": "0", "dest": "0", "hash": "0", "keyed": "false", "ordered": "false", "bytes": "0", "error": "''", "error_text": "NULL::text", "destination": "''",
	"route_name": "NULL::bytea", "routing_key": "NULL::bytea", "id": "NULL::bytea", "aggregate": "NULL::bytea", "key": "NULL::bytea",
	"type": "NULL::bytea", "payload": "NULL::bytea", "traceparent": "NULL::bytea", "headers": "NULL::bytea", "columns": "NULL::bytea",
	"fault": "NULL::bytea", "raw": "NULL::bytea", "left_out": "NULL::text",
}

// answerSQL carries out requests, records that in request and audit, and returns for each request
// whether it took place. q are the requests that still wait; they are locked, so that no operator
// can cancel them meanwhile. A replay that was confirmed is in q even if an operator has cancelled
// it. Purging a row also removes what its requests tell about it. The audit never has an error
// text.
var answerSQL = func() string {
	a := answerArrays(nil, nil)
	x := a.table(5, a.names)
	deadLetter := func(name, assignments, which, result string) string {
		return name + ` AS (UPDATE cdc_relay.dead_letter t SET ` + assignments + ` FROM q WHERE ` + namedSQL + ` AND ` + which + ` RETURNING x_request, ` + result + ` AS result)`
	}
	taken := func(name, kind string) string {
		return name + ` AS (DELETE FROM cdc_relay.retry t USING q WHERE ` + namedSQL + ` AND q.x_verdict = 'carry out' AND q.kind = '` + kind + `'
			RETURNING t.*, x_request)`
	}
	return writeFence + `, q AS MATERIALIZED (SELECT x.*, r.kind, r.who, r.reason AS why, r.n AS target FROM fence, ` + x + ` JOIN cdc_relay.request r ON r.id = x_request
			WHERE r.slot = $1 AND r.system_id = $3 AND (r.state = 'waiting' OR r.state = 'cancelled' AND x_verdict = 'replayed') AND x_verdict <> 'waits'
			FOR UPDATE OF r),
		` + deadLetter("closed", `state = CASE q.kind WHEN 'replay' THEN 'replayed' ELSE 'discarded' END, closed_at = now()`,
		`t.state = 'open' AND (q.x_verdict = 'replayed' OR q.x_verdict = 'carry out' AND q.kind = 'discard')`, "t.state") + `,
		sent AS (` + sent.InsertRowsSQL(`(SELECT t.relation, t.tx, t.id FROM q JOIN cdc_relay.dead_letter t ON `+namedSQL+` WHERE t.state = 'open' AND q.x_verdict = 'replayed') r`, "$1") + `),
		` + deadLetter("refused", strings.TrimSuffix(assignments(afterRefusal), ", "), `t.state = 'open' AND q.x_verdict = 'refused'`, "q.x_said") + `,
		` + deadLetter("redacted", `payload = NULL, headers = NULL, columns = NULL, raw = NULL, traceparent = NULL, error_text = NULL, redacted_at = now()`,
		`t.state <> 'purged' AND q.x_verdict = 'carry out' AND q.kind = 'redact'`, "'redacted'") + `,
		` + deadLetter("purged", assignments(purgedValues)+`digest = `+rowDigest+`, state = 'purged', closed_at = coalesce(t.closed_at, now())`,
		`t.state <> 'purged' AND `+purgesSQL, "'purged'") + `,
		emptied AS MATERIALIZED (SELECT n, bool_or(purged) AS purged FROM (
			SELECT t.n, ` + purgesSQL + ` AS purged FROM q JOIN cdc_relay.dead_letter t ON ` + namedSQL + ` WHERE t.state <> 'purged' AND (` + purgesSQL + ` OR q.x_verdict = 'carry out' AND q.kind = 'redact')
			UNION ALL SELECT t.n, true FROM q JOIN cdc_relay.retry t ON ` + namedSQL + ` WHERE ` + purgesSQL + `) e GROUP BY n),
		asked AS (UPDATE cdc_relay.request r SET route_name = CASE WHEN NOT p.purged THEN r.route_name END, routing_key = CASE WHEN NOT p.purged THEN r.routing_key END,
				result = CASE r.state WHEN 'failed' THEN '` + store.TextPurged + `' ELSE r.result END
			FROM emptied p WHERE r.n = p.n AND r.slot = $1 AND r.state <> 'waiting' AND r.id NOT IN (SELECT x_request FROM q)),
		` + taken("dying", "dead_letter") + `,
		` + taken("going", "purge") + `,
		died AS (INSERT INTO cdc_relay.dead_letter (slot, system_id, ` + fieldNames() + `, deferred_at)
			SELECT t.slot, t.system_id, ` + fieldList("t", nil) + `, t.deferred_at FROM dying t),
		gone AS (INSERT INTO cdc_relay.dead_letter (slot, system_id, ` + fieldNames() + `, deferred_at, state, closed_at, digest)
			SELECT t.slot, t.system_id, ` + fieldList("t", purgedValues) + `, t.deferred_at, 'purged', now(), ` + rowDigest + ` FROM going t),
		retried AS (UPDATE cdc_relay.retry t SET next_attempt = now() FROM (
				SELECT DISTINCT h.n FROM q JOIN cdc_relay.retry t ON ` + namedSQL + ` CROSS JOIN LATERAL (SELECT h.n FROM cdc_relay.retry h
				WHERE ` + inSlotSQL("h") + ` AND h.ordering_group = t.ordering_group ORDER BY h.incarnation, h.commit_lsn, h.idx LIMIT 1) h
				WHERE q.x_verdict = 'carry out' AND q.kind = 'retry') h WHERE t.n = h.n),
		effects AS (SELECT * FROM closed UNION ALL SELECT * FROM redacted UNION ALL SELECT * FROM purged
			UNION ALL SELECT x_request, 'dead letter' FROM dying UNION ALL SELECT x_request, 'purged' FROM going
			UNION ALL SELECT x_request, 'is tried' FROM q JOIN cdc_relay.retry t ON ` + namedSQL + ` WHERE q.x_verdict = 'carry out' AND q.kind = 'retry'),
		ends AS (SELECT q.*, e.x_request IS NOT NULL AS done, coalesce(e.result, nullif(q.x_said, ''), '` + store.NotAllowed + `') AS result
			FROM q LEFT JOIN effects e USING (x_request)),
		answered AS (UPDATE cdc_relay.request r SET state = CASE WHEN e.done THEN 'done' ELSE 'failed' END, result = e.result, done_at = now()
			FROM ends e WHERE r.id = e.x_request),
		noted AS (INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, incarnation, commit_lsn, idx, why, result, request)
			SELECT $1, $3, e.who, e.kind, e.target, nullif(e.x_incarnation, 0), nullif(e.x_commit, '0/0')::pg_lsn,
				CASE WHEN e.x_incarnation <> 0 THEN e.x_idx END, e.why, CASE e.x_verdict WHEN 'refused' THEN e.x_reason ELSE e.result END, e.x_request FROM ends e)
		SELECT r.id, coalesce(e.done, r.state = 'done') FROM fence LEFT JOIN (` + x + ` JOIN cdc_relay.request r ON r.id = x_request
			LEFT JOIN ends e USING (x_request)) ON true`
}()

// AnswerRequests implements Store.
func (p *Store) AnswerRequests(ctx context.Context, answers []store.Answer) ([]bool, error) {
	if len(answers) == 0 {
		return nil, nil
	}
	args := func(as storable) []any {
		a := answerArrays(answers, as)
		return append([]any{p.cfg.SystemID, time.Now()}, a.values...)
	}
	var moved []*store.Row // the others' large columns are not written
	for i := range answers {
		if q := &answers[i].Request; q.Kind == store.DeadLetter && q.Row != nil {
			moved = append(moved, q.Row)
		}
	}
	took := map[int64]bool{}
	err := p.runSizedWrite(ctx, "answer requests", sizeOf(moved), answerSQL, args, func(rows pgx.Rows) error {
		var id int64
		var was bool
		err := rows.Scan(&id, &was)
		took[id] = was
		return err
	})
	return valuesOf(answers, func(a store.Answer) bool { return took[a.Request.ID] }), err
}

// slotSeen is what pg_replication_slots showed of our slot at one time.
//
// A purged row must stay while the slot may send its event again. A crash of PostgreSQL takes the
// slot back to its last saved state. A server may run for hours without saving the slot when only
// confirmed_flush_lsn moves. But restart_lsn never moves alone: the walsender sets it together with
// a confirmed_flush_lsn at or above it, and saves the slot before it takes the next report
// (LogicalConfirmReceivedLocation). The view shows both before they are saved. So the rule is: if
// the same walsender has moved confirmed_flush_lsn since we read the view, the restart_lsn that we
// read is saved. A transaction whose commit record is below the saved confirmed_flush_lsn is not
// sent again. So a transaction below that restart_lsn is not sent again either.
type slotSeen struct {
	pid            int32
	restart, flush pglogrepl.LSN
}

// expireSQL empties old dead letters, and removes emptied rows and old requests. Positions of
// former incarnations do not come again, whatever the slot has saved. A row with a digest stays:
// retention takes the digest away once the outbox does not have its row any more.
var expireSQL = writeFence + `, slot AS MATERIALIZED (SELECT coalesce(s.active_pid, 0) AS pid, coalesce(s.restart_lsn, '0/0') AS restart, coalesce(s.confirmed_flush_lsn, '0/0') AS flush
			FROM fence, pg_replication_slots s WHERE s.slot_name = $1::text),
		removed AS (DELETE FROM cdc_relay.dead_letter t USING (SELECT t.n FROM fence LEFT JOIN slot s ON true, cdc_relay.dead_letter t WHERE ` + inSlotSQL("t") + ` AND t.state = 'purged' AND t.digest IS NULL
			AND (t.incarnation < $6 OR t.incarnation = $6 AND s.pid = $7 AND s.pid <> 0 AND s.flush > $9::text::pg_lsn AND t.commit_lsn < $8::text::pg_lsn)
			LIMIT $5) o WHERE t.n = o.n RETURNING t.n),
		emptied AS (UPDATE cdc_relay.dead_letter t SET ` + assignments(purgedValues) + `digest = CASE t.state WHEN 'discarded' THEN ` + rowDigest + ` END, state = 'purged' FROM (SELECT t.n FROM fence, cdc_relay.dead_letter t
			WHERE ` + inSlotSQL("t") + ` AND t.state IN ('replayed', 'discarded') AND t.closed_at < now() - make_interval(secs => $4::float8)
			ORDER BY t.closed_at LIMIT $5) o WHERE t.n = o.n RETURNING t.n),
		forgotten AS (DELETE FROM cdc_relay.request q USING (SELECT q.id FROM fence, cdc_relay.request q WHERE q.slot = $1 AND q.system_id = $3
			AND q.state <> 'waiting' AND q.done_at < now() - make_interval(secs => $4::float8) ORDER BY q.done_at LIMIT $5) o WHERE q.id = o.id RETURNING q.id),
		noted AS (INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result)
			SELECT $1, $3, '` + store.AgeActor + `', 'purge', 0, $10, e.n || ' dead letters' FROM (SELECT count(*) AS n FROM emptied) e WHERE e.n > 0)
		SELECT (SELECT count(*) FROM removed) + (SELECT count(*) FROM emptied) + (SELECT count(*) FROM forgotten),
			slot.pid, slot.restart::text, slot.flush::text FROM fence LEFT JOIN slot ON true`

// ExpireDeadLetters implements Store.
func (p *Store) ExpireDeadLetters(ctx context.Context, keep time.Duration, limit int) (changed int, err error) {
	p.mu.Lock()
	seen := p.slotSeen
	p.mu.Unlock()
	age := keep.Seconds()
	if keep <= 0 {
		age = longestKeep.Seconds()
	}
	var (
		pid            *int32
		restart, flush *string
	)
	args := func(storable) []any {
		return []any{p.cfg.SystemID, age, limit, p.cfg.Incarnation, seen.pid, seen.restart.String(), seen.flush.String(), store.AgeReason(keep)}
	}
	err = p.runWrite(ctx, "expire dead letters", expireSQL, args, func(rows pgx.Rows) error {
		return rows.Scan(&changed, &pid, &restart, &flush)
	})
	if err != nil || pid == nil {
		return changed, err
	}
	now := slotSeen{pid: *pid}
	if now.restart, err = pglogrepl.ParseLSN(*restart); err != nil {
		return changed, err
	}
	if now.flush, err = pglogrepl.ParseLSN(*flush); err != nil {
		return changed, err
	}
	p.mu.Lock()
	p.slotSeen = now
	p.mu.Unlock()
	return changed, nil
}

// longestKeep is longer than any dead letter is kept.
const longestKeep = 200 * 365 * 24 * time.Hour
