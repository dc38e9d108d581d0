// The view cdc_relay.outbox_status: what it says of rows, who may read it, and which tables it has.

package replication

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// withView is a bench with the view of its table; no relay has run.
func withView(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	b := newBench(t, servers.OwnPostgres(t).Database(t))
	b.exec(`DROP TABLE outbox; CREATE TABLE outbox (id text PRIMARY KEY, payload jsonb, created_at timestamptz NOT NULL DEFAULT now(), tx xid8 DEFAULT pg_current_xact_id())`)
	b.cfg.Tables[0].Mapping.Timestamp = decode.Names{Any: []string{"created_at"}, Optional: true}
	b.init(setup.InitOptions{NoSlot: true, StatusView: true})
	b.record()
	b.exec(`INSERT INTO cdc_relay.progress (slot, max_flush_lsn, reported, good) VALUES ($1, '0/1', '0/1', '0/1')`, b.cfg.Slot)
	return b
}

// record is that of a slot that a relay has used.
func (b *bench) record() {
	b.t.Helper()
	b.exec(`INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation)
		SELECT $1, system_identifier, 1, 'p', 'ready', 1 FROM pg_control_system()`, b.cfg.Slot)
}

// statuses are the rows of the view, of one slot.
func (b *bench) statuses() string {
	b.t.Helper()
	return b.text(`SELECT coalesce(string_agg(id || ' ' || status, ', ' ORDER BY table_name, id), '') FROM cdc_relay.outbox_status WHERE slot = $1`, b.cfg.Slot)
}

func (b *bench) wantStatuses(want string) {
	b.t.Helper()
	if got := b.statuses(); got != want {
		b.t.Errorf("the view has %q, want %q", got, want)
	}
}

// deliver records that rows were delivered.
func (b *bench) deliver(ids ...string) {
	b.t.Helper()
	b.exec(`WITH rows AS (SELECT tableoid AS relation, tx::text::bigint AS tx, convert_to(id::text, 'UTF8') AS id FROM outbox WHERE id::text = ANY ($2::text[])) `+
		sent.InsertRowsSQL("rows", "$1"), b.cfg.Slot, ids)
}

// refuse puts an event into retry or dead_letter.
func (b *bench) refuse(table, id string) {
	b.t.Helper()
	b.exec(`INSERT INTO cdc_relay.`+table+refusedRow, b.cfg.Slot, id, 1)
}

// refusedRow follows the name of retry or dead_letter in an INSERT. $2 is the id, $3 the number of
// rows.
const refusedRow = ` (slot, system_id, incarnation, commit_lsn, idx, n, ordering_group, exchange_or_topic, dest, hash, keyed, ordered, attempts, bytes,
		deferred_at, class, reason, error, destination, commit_time, event_time, id, payload_kind)
	SELECT slot, system_id, 1, '0/1'::pg_lsn + q.n, 0, q.n, 1, 1, 1, 1, true, true, 1, 10, '2026-11-20Z', 'permanent', 'too_large', '', '', now(), now(), convert_to($2, 'UTF8'), 0
	FROM cdc_relay.slots, generate_series(1, $3::int) i, LATERAL (SELECT nextval('cdc_relay.row_number') + 0 * i AS n OFFSET 0) q
	WHERE slot = $1`

func TestStatusView(t *testing.T) {
	b := withView(t)
	b.insert("a")
	b.wantStatuses("a new") // nothing is recorded
	b.deliver("a")
	for _, id := range []string{"new", "refused", "dead"} {
		b.insert(id)
	}
	b.wantStatuses("a processed, dead new, new new, refused new")
	b.refuse("retry", "refused")
	b.refuse("dead_letter", "dead")
	b.refuse("dead_letter", "refused") // an earlier event with the id of a deferred one
	b.wantStatuses("a processed, dead failed, new new, refused deferred")
	b.exec(`UPDATE cdc_relay.retry SET next_attempt = '2026-11-21Z'`)
	b.wantText("public.outbox 2026-11-20 2026-11-21 too_large", `SELECT concat_ws(' ', table_name, since::date, next_attempt::date, reason) FROM cdc_relay.outbox_status WHERE id = 'refused'`)
	b.wantText("true", `SELECT bool_and(event_time = created_at AND committed_at IS NULL)::text FROM cdc_relay.outbox_status JOIN outbox USING (id)`)
	b.exec(`UPDATE cdc_relay.dead_letter SET state = 'discarded'; DELETE FROM cdc_relay.retry`)
	b.deliver("refused")
	// a discarded one was not delivered
	b.wantStatuses("a processed, dead new, new new, refused processed")

	// no server gives such a transaction, and the other rows are there all the same
	b.exec(`UPDATE outbox SET tx = '18446744073709551615' WHERE id = 'new'`)
	b.wantStatuses("a processed, dead new, new new, refused processed")

	// of another system the rows say nothing
	b.refuse("retry", "a")
	b.exec(`UPDATE cdc_relay.retry SET system_id = '7'`)
	b.wantStatuses("a processed, dead new, new new, refused processed")
}
