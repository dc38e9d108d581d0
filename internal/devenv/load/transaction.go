// A writer and its transactions: rows, savepoints that are rolled back, lost connections.

package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/sentinel"
)

// writer is one session of a Workload. It is not safe for concurrent use.
type writer struct {
	load   *Workload
	id     int
	random *rand.Rand
	conn   *pgx.Conn // nil: not connected
}

func (w *writer) connect(ctx context.Context) (err error) {
	if w.conn != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	w.conn, err = pgx.Connect(ctx, w.load.URL)
	return err
}

// reconnect returns when there is a connection, or ctx has ended.
func (w *writer) reconnect(ctx context.Context) {
	connected := func() (bool, error) { return w.connect(ctx) == nil, nil }
	_ = processes.Poll(ctx, 100*time.Millisecond, connected) //nolint:errcheck // ctx has ended, which the caller sees
}

func (w *writer) disconnect() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.conn.Close(ctx) // it may have ended already
	w.conn = nil
}

// serverAway reports whether the server or the way to it has failed, not the statement.
func (w *writer) serverAway(err error) bool {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return w.conn == nil || w.conn.IsClosed()
	}
	switch answer.Code[:2] {
	case "08", "53", "57": // connection exception, insufficient resources, operator intervention
		return true
	}
	return false
}

// transaction writes RowsPerTx rows and ends as the dice say. Once begun it is not cancelled by
// ctx.
func (w *writer) transaction(ctx context.Context) error {
	if err := w.connect(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
	defer cancel()
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // after a commit it does nothing, after an error the error is returned

	kept, undone := w.draw(w.load.RowsPerTx), []draft(nil)
	if w.random.Float64() < w.load.SavepointRollbacks {
		undone = w.draw(max(1, w.load.RowsPerTx/2))
	}
	last, err := lockKeys(ctx, tx, append(slices.Clone(kept), undone...))
	if err != nil {
		return err
	}
	half := len(kept) / 2
	if err := w.insert(ctx, tx, kept[:half], last); err != nil {
		return err
	}
	if len(undone) > 0 {
		if err := w.insertAndUndo(ctx, tx, undone, last); err != nil {
			return err
		}
	}
	if err := w.insert(ctx, tx, kept[half:], last); err != nil {
		return err
	}
	if err := storeKeys(ctx, tx, last); err != nil {
		return err
	}
	if w.random.Float64() < w.load.Rollbacks {
		w.load.note(nil, time.Time{}, rowsOf(append(kept, undone...)))
		return tx.Rollback(ctx)
	}
	w.load.note(nil, time.Time{}, rowsOf(undone))
	at := time.Now()
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	w.load.note(rowsOf(kept), at, nil)
	return nil
}

// draft is a row before it is numbered, and what is not the checker's business.
type draft struct {
	checker.Row
	kind *Kind // nil: the usual one
}

// draw makes n rows of random keys, not yet numbered.
func (w *writer) draw(n int) []draft {
	rows := make([]draft, n)
	for i := range rows {
		key := w.random.Uint64N(uint64(w.load.Keys))
		kind := w.kind(int(key))
		rows[i] = draft{
			Row: checker.Row{
				ID: NewUUID(), Aggregate: cmp.Or(kind.Aggregate, "order"), Key: fmt.Sprintf("k%d%s", key, w.load.suffix()),
				ExchangeOrTopic: cmp.Or(kind.Destination, w.load.Routed),
			},
			kind: kind,
		}
	}
	return rows
}

var usual = &Kind{}

// kind draws the kind of a row of a key.
func (w *writer) kind(key int) *Kind {
	if len(w.load.Kinds) == 0 {
		return usual
	}
	at := w.random.Float64()
	for i := range w.load.Kinds {
		kind := &w.load.Kinds[i]
		if kind.Keys > 0 && key >= kind.Keys {
			continue
		}
		if at < kind.Share {
			return kind
		}
		at -= kind.Share
	}
	return usual
}

func rowsOf(drafts []draft) []checker.Row {
	rows := make([]checker.Row, len(drafts))
	for i := range drafts {
		rows[i] = drafts[i].Row
	}
	return rows
}

// lockKeys locks the keys of the rows and returns the last number of each.
func lockKeys(ctx context.Context, tx pgx.Tx, rows []draft) (map[string]int64, error) {
	last := map[string]int64{}
	for _, row := range rows {
		last[row.Key] = 0
	}
	keys := make([]string, 0, len(last))
	for key := range last {
		keys = append(keys, key)
	}
	found, err := tx.Query(ctx, "SELECT key, seq FROM order_keys WHERE key = ANY($1) ORDER BY key FOR UPDATE", keys)
	if err != nil {
		return nil, err
	}
	var key string
	var seq int64
	_, err = pgx.ForEachRow(found, []any{&key, &seq}, func() error { last[key] = seq; return nil })
	return last, err
}

func storeKeys(ctx context.Context, tx pgx.Tx, last map[string]int64) error {
	var keys []string
	var seqs []int64
	for key, seq := range last {
		keys, seqs = append(keys, key), append(seqs, seq)
	}
	_, err := tx.Exec(ctx, "UPDATE order_keys o SET seq = n.seq FROM unnest($1::text[], $2::bigint[]) n(key, seq) WHERE o.key = n.key", keys, seqs)
	return err
}

// insertAndUndo writes rows that are rolled back to a savepoint; their numbers are free again.
func (w *writer) insertAndUndo(ctx context.Context, tx pgx.Tx, rows []draft, last map[string]int64) error {
	inner, err := tx.Begin(ctx) // SAVEPOINT
	if err != nil {
		return err
	}
	numbers := map[string]int64{}
	for key, seq := range last {
		numbers[key] = seq
	}
	if err := w.insert(ctx, inner, rows, numbers); err != nil {
		return err
	}
	return inner.Rollback(ctx)
}

var types = []string{"placed", "paid", "shipped"}

// insert numbers the rows and writes them, a thousand with each statement.
func (w *writer) insert(ctx context.Context, tx pgx.Tx, rows []draft, last map[string]int64) error {
	columns := []string{"id", "aggregatetype", "aggregateid", "type", "payload"}
	casts := []string{"uuid", "text", "text", "text", "jsonb"}
	if w.load.Routed != "" {
		columns, casts = append(columns, "destination", "routing_key"), append(casts, "text", "text")
	}
	var unnested []string
	for i, cast := range casts {
		unnested = append(unnested, fmt.Sprintf("$%d::%s[]", i+1, cast))
	}
	names := strings.Join(columns, ", ")
	more, header := "", ""
	if w.load.Personal {
		more, header = ", headers", fmt.Sprintf(`, '{"customer": "%s"}'`, sentinel.SentinelHeader)
	}
	sql := fmt.Sprintf("INSERT INTO outbox (%s%s) SELECT %[1]s%[3]s FROM unnest(%[4]s) WITH ORDINALITY r(%[1]s, n) ORDER BY n", names, more, header, strings.Join(unnested, ", "))
	for chunk := range slices.Chunk(rows, 1000) {
		values := make([][]string, len(columns))
		for i := range chunk {
			row := &chunk[i]
			last[row.Key]++
			row.Seq = last[row.Key]
			kind := cmp.Or(row.kind.Type, types[row.Seq%int64(len(types))])
			routingKey := cmp.Or(row.kind.RoutingKey, row.Aggregate+"."+kind)
			for column, value := range []string{row.ID, row.Aggregate, row.Key, kind, w.payload(row), row.ExchangeOrTopic, routingKey}[:len(columns)] {
				values[column] = append(values[column], value)
			}
		}
		args := make([]any, len(values))
		for i, column := range values {
			args[i] = column
		}
		if _, err := tx.Exec(ctx, sql, args...); err != nil {
			return err
		}
	}
	return nil
}

// payload is the row as JSON, filled up to the size that is asked for; jsonb prints it the same.
func (w *writer) payload(row *draft) string {
	text := fmt.Sprintf(`{"key": %q, "seq": %d, "fill": "", "writer": %d}`, row.Key, row.Seq, w.id)
	if w.load.Personal {
		text = fmt.Sprintf(`{"key": %q, "seq": %d, "fill": "", "writer": %d, "customer": %q}`, row.Key, row.Seq, w.id, sentinel.SentinelPayload)
	}
	if missing := max(row.kind.Payload, w.load.Payload) - len(text); missing > 0 {
		text = strings.Replace(text, `"fill": "`, `"fill": "`+strings.Repeat("x", missing), 1)
	}
	return text
}

// NewUUID is a random UUID (RFC 9562, version 4).
func NewUUID() string {
	a, b := rand.Uint64(), rand.Uint64()
	a = a&^0xf000 | 0x4000
	b = b&^(3<<62) | 2<<62
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&0xffffffffffff)
}

// suffix is at the end of each key.
func (w *Workload) suffix() string {
	if w.Personal {
		return "-" + sentinel.SentinelKey
	}
	return ""
}

func (w *Workload) note(committed []checker.Row, at time.Time, rolledBack []checker.Row) {
	w.mu.Lock()
	w.committed += int64(len(committed))
	for _, row := range rolledBack {
		w.rolledBack = append(w.rolledBack, row.ID)
	}
	w.mu.Unlock()
	if w.OnCommit != nil && len(committed) > 0 {
		w.OnCommit(committed, at)
	}
}
