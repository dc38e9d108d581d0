package replication

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/decode"
)

// What Check asks about the outbox tables and what the publication sends of them.

// fitting describes the tables as the relay will read them: OIDs, and the mapped columns with their types.
func (k *checker) fitting(ctx context.Context, tables []decode.Table) string {
	texts := make([]string, len(tables))
	for i, t := range tables {
		m := t.Mapping
		var names []string
		for _, part := range []decode.Names{m.ID, m.Aggregate, m.Key, m.Type, m.Payload, m.Timestamp, m.Traceparent, m.Headers} {
			names = append(names, part.Any...)
		}
		var columns string
		err := k.pool.QueryRow(ctx, `SELECT coalesce(string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum), '') FROM pg_attribute
			WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped AND attname = ANY ($2)`, t.OID, append(names, k.c.Columns...)).Scan(&columns)
		if err != nil {
			columns = "its columns could not be asked: " + oneLine{err}.Error()
		}
		texts[i] = fmt.Sprintf("%s (OID %d: %s)", t, t.OID, columns)
	}
	return strings.Join(texts, ", ")
}

// scope warns of a publication of all tables: the server decodes and sends what nobody here wants.
func (k *checker) scope(ctx context.Context, used bool) {
	const name = "publication scope"
	var all, more bool
	err := k.pool.QueryRow(ctx, `SELECT puballtables, pubupdate OR pubdelete OR pubtruncate FROM pg_publication WHERE pubname = $1`, k.c.Publication).Scan(&all, &more)
	switch {
	case isNoRows(err) || k.unasked(name, err):
	case all && !used:
		k.warn(name, "FOR ALL TABLES: every change of every table is sent to the relay, which throws it away",
			fmt.Sprintf("DROP PUBLICATION %s; %s", quoteName(k.c.Publication), createPublicationSQL(k.c)))
	case all:
		other := *k.c
		other.Publication += "_outbox"
		k.warn(name, "FOR ALL TABLES: every change of every table is sent to the relay, which throws it away",
			createPublicationSQL(&other)+fmt.Sprintf("; once the relay has passed that, stop it, set source.publication: %s, and accept the slot%s",
				other.Publication, strings.Replace(adoptHint(k.c), "; then accept the slot as it is", "", 1)))
	case more:
		k.add(name, "the tables; updates and deletes are sent too, and thrown away", nil)
	default:
		k.add(name, "the tables, and inserts alone", nil)
	}
}

// heap is what the server's statistics say of a table that has rows: of each partition, for a partitioned one.
type heap struct {
	Name       string // as SQL
	Options    []string
	Live, Dead int64
	Deleted    int64 // or updated
	Vacuumed   *time.Time
}

const (
	deadRows = 10_000  // fewer are no bloat
	manyRows = 100_000 // of so many the fifth that autovacuum waits for is much
)

// vacuum looks for dead rows that pile up, and for what keeps autovacuum from them: an outbox that is deleted from has a
// dead row for each that was.
func (k *checker) vacuum(ctx context.Context) {
	const name = "vacuum"
	var autovacuum string
	err := k.pool.QueryRow(ctx, `SELECT current_setting('autovacuum')`).Scan(&autovacuum)
	if k.unasked(name, err) {
		return
	}
	if autovacuum == "off" {
		k.warn(name, "autovacuum is off: dead rows pile up, and the server has to stop in the end", "ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()")
		return
	}
	for _, t := range k.c.Tables {
		if t.OID == 0 { // it is not there, and that was said
			continue
		}
		heaps, err := k.heaps(ctx, t.OID)
		if k.unasked(name, err) || len(heaps) == 0 {
			continue
		}
		worst := slices.MaxFunc(heaps, func(a, b heap) int { return a.severity() - b.severity() })
		detail := fmt.Sprintf("%s has %d dead rows beside %d, last vacuumed %s", worst.Name, worst.Dead, worst.Live, worst.when())
		switch worst.severity() {
		case 3:
			k.warn(name, detail+"; autovacuum leaves it out", fmt.Sprintf("ALTER TABLE %s SET (autovacuum_enabled = true)", worst.Name))
		case 2:
			k.warn(name, detail+": it is more air than rows. If that stays so, a transaction is open for long (pg_stat_activity, by xact_start)", "VACUUM "+worst.Name)
		case 1:
			k.warn(name, detail+"; it is deleted from, and autovacuum comes when a fifth of it is dead",
				fmt.Sprintf("ALTER TABLE %s SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0)", worst.Name))
		default:
			k.add(name, detail, nil)
		}
	}
}

func (k *checker) heaps(ctx context.Context, oid uint32) ([]heap, error) {
	rows, err := k.pool.Query(ctx, `SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), coalesce(c.reloptions, '{}'), s.n_live_tup, s.n_dead_tup,
			s.n_tup_del + s.n_tup_upd, greatest(s.last_vacuum, s.last_autovacuum)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_stat_all_tables s ON s.relid = c.oid
		WHERE c.relkind = 'r' AND (c.oid = $1 OR c.oid IN (SELECT relid FROM pg_partition_tree($1) WHERE isleaf)) ORDER BY s.n_dead_tup DESC, 1`, oid)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[heap])
}

// severity is 0 when all is well.
func (h heap) severity() int {
	own := false
	for _, option := range h.Options {
		name, value, _ := strings.Cut(option, "=")
		if name == "autovacuum_enabled" && isOff(value) {
			return 3
		}
		own = own || name == "autovacuum_vacuum_scale_factor" || name == "autovacuum_vacuum_threshold"
	}
	switch {
	case h.Dead > deadRows && h.Dead > h.Live:
		return 2
	case h.Deleted > deadRows && h.Live > manyRows && !own:
		return 1
	}
	return 0
}

func (h heap) when() string {
	if h.Vacuumed == nil {
		return "never"
	}
	return h.Vacuumed.UTC().Format(time.DateTime)
}
