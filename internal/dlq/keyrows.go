// The rows of one key in an outbox table. They are found by an index; when a large table has none,
// the search names the index to make.

package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// The bounds of a search by key, whatever the tables have.
const (
	smallTable  = 16 << 20 // bytes of a table that is read whole when no index serves
	smallRetry  = 256 << 20
	maxExamined = 10_000 // rows of one key
	keyBytes    = 8 << 20
	// keyTimeout is how long reading one table may take.
	keyTimeout = 8 * time.Second
)

// MissingIndex is an index without which a table is not searched, or is not read in order.
type MissingIndex struct {
	Table string   `json:"table"`
	Why   string   `json:"why"`
	SQL   []string `json:"sql"` // the statements that make it, each to be run outside a transaction
}

// keyTable is an outbox table with what a search by key needs to know of it.
type keyTable struct {
	outboxTable
	leaves map[string]*keyLeaf // the tables that have the rows, by their quoted names
	// a column that looks like the time of a row, when Timestamp names none
	ownTime string
	parent  bool // the rows are in partitions; tables that only inherit do not count
}

type keyLeaf struct {
	bytes   int64
	indexes [][]string // the columns of each; "" for an expression
}

// keyLeavesSQL reads the tables that have the rows of the table $1, each with its indexes that can
// find rows by a value.
const keyLeavesSQL = `WITH RECURSIVE root AS (SELECT oid, relkind = 'p' AS parent FROM pg_class WHERE oid = to_regclass($1)),
	tree AS (SELECT oid, parent FROM root UNION SELECT inhrelid, parent FROM ` + sent.HeirsSQL + ` JOIN tree ON inhparent = tree.oid WHERE parent)
	SELECT format('%I.%I', nspname, relname), pg_relation_size(c.oid), parent, x.columns
	FROM tree JOIN pg_class c ON c.oid = tree.oid JOIN pg_namespace s ON s.oid = relnamespace
	LEFT JOIN LATERAL (SELECT array(SELECT coalesce(attname::text, '') FROM unnest(i.indkey) WITH ORDINALITY k (n, o)
				LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n WHERE o <= i.indnkeyatts ORDER BY o) AS columns
			FROM pg_index i JOIN pg_class ic ON ic.oid = i.indexrelid JOIN pg_am m ON m.oid = ic.relam
			WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL AND amname IN ('btree', 'hash')) x ON true
	WHERE c.relkind = 'r'`

// describeKeyTable reads what a search needs to know of a table. It returns nil when the table does
// not exist, or has no column for the key or the id.
func (a *Admin) describeKeyTable(ctx context.Context, o Outbox) (*keyTable, error) {
	t := &keyTable{leaves: map[string]*keyLeaf{}}
	name := pgx.Identifier{o.Schema, o.Table}.Sanitize()
	err := a.one(ctx, "read the columns of "+name, "SELECT coalesce("+sent.OwnTimeSQL("to_regclass($1)")+", '')", []any{name}, &t.ownTime)
	if err != nil {
		return nil, err
	}
	named := o.Timestamp
	o.Timestamp = slices.Concat(named, []string{t.ownTime})
	if t.outboxTable, err = describeOutbox(ctx, a.db, o); err != nil {
		return nil, err
	}
	if len(t.present(named)) > 0 {
		t.ownTime = ""
	}
	if len(t.present(o.Key)) == 0 || len(t.present(o.ID)) == 0 {
		return nil, nil
	}
	type index struct {
		leaf    string
		bytes   int64
		parent  bool
		columns []string
	}
	indexes, err := all(ctx, a, "read the indexes of "+t.name, keyLeavesSQL, []any{t.name}, func(row pgx.CollectableRow) (i index, err error) {
		return i, row.Scan(&i.leaf, &i.bytes, &i.parent, &i.columns)
	})
	if err != nil {
		return nil, err
	}
	for _, i := range indexes {
		leaf := t.leaves[i.leaf]
		if leaf == nil {
			leaf = &keyLeaf{bytes: i.bytes}
			t.leaves[i.leaf] = leaf
		}
		leaf.indexes = append(leaf.indexes, i.columns)
		t.parent = t.parent || i.parent
	}
	return t, nil
}

// bytes returns the size of all rows.
func (t *keyTable) bytes() (n int64) {
	for _, leaf := range t.leaves {
		n += leaf.bytes
	}
	return n
}

// lacking returns the leaves that no index serves. An index serves when it begins with the key and
// the aggregate, if that is given, in either order, and continues with then; then "" accepts
// anything. big reports whether these leaves are too large to be read whole.
func (t *keyTable) lacking(key, aggregate, then string) (leaves []string, big bool) {
	size := int64(0)
	for name, leaf := range t.leaves {
		serves := slices.ContainsFunc(leaf.indexes, func(columns []string) bool {
			i := 0
			if aggregate != "" && i < len(columns) && columns[i] == aggregate {
				i++
			}
			if i >= len(columns) || columns[i] != key {
				return false
			}
			if i++; i == 1 && aggregate != "" && i < len(columns) && columns[i] == aggregate {
				i++
			}
			return then == "" || i < len(columns) && columns[i] == then
		})
		if !serves {
			leaves, size = append(leaves, name), size+leaf.bytes
		}
	}
	slices.Sort(leaves)
	return leaves, size > smallTable
}

// indexSQL returns the statements for the index that a search by key wants. An index of a
// partitioned table cannot be made concurrently, so each partition gets its own, and the one of the
// table itself is for later partitions.
func (t *keyTable) indexSQL(key string, leaves []string) (list []string) {
	columns := pgx.Identifier{key}.Sanitize()
	if _, tx := t.transaction(); tx != "" {
		columns += ", " + pgx.Identifier{tx}.Sanitize()
	}
	if t.parent {
		list = append(list, fmt.Sprintf("CREATE INDEX ON ONLY %s (%s)", t.name, columns))
	}
	for _, leaf := range leaves {
		list = append(list, fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s)", leaf, columns))
	}
	return list
}

// keyRow is a row of an outbox table with the key.
type keyRow struct {
	outboxRow
	leaf            uint32
	digest          *int64 // as cdc_relay.sent has it; nil when it is not known
	key             string // as the column has it
	aggregate, kind *string
	at              *time.Time // the time in the row
	cut             []string
}

// keyAnswer is what was found in one table.
type keyAnswer struct {
	rows    []keyRow
	more    bool // there are more rows, which are older
	notes   []string
	missing []MissingIndex
	ownTime string   // the column of the rows' times, when the configuration names none
	forms   []string // forms of the key that events have: 42 for 042 in a column of integers
}

// keyRows reads the rows of a key, no more than most, from a table, the newest first as far as that
// is known.
func (a *Admin) keyRows(ctx context.Context, f *EventFilter, o Outbox, most int) (out keyAnswer, err error) {
	t, err := a.describeKeyTable(ctx, o)
	if t == nil || err != nil {
		return out, err
	}
	out.ownTime = t.ownTime
	keys := t.present(o.Key)
	for i, key := range keys {
		if err := a.rowsOfColumn(ctx, f, t, keys[:i], key, most, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

// rowsOfColumn adds the rows with the key in one column, and NULL in the columns before it.
func (a *Admin) rowsOfColumn(ctx context.Context, f *EventFilter, t *keyTable, before []string, key string, most int, out *keyAnswer) error {
	not := func(why string) error {
		out.notes = append(out.notes, fmt.Sprintf("%s is not searched: %s", t.name, why))
		return nil
	}
	c := t.columns[key]
	if c.computed {
		return not(fmt.Sprintf("its column %s is computed when it is read", key))
	}
	var w where
	form := string(f.Key)
	if c.own {
		// a text that is no value of the type is in no row
		err := a.one(ctx, "read the key", "SELECT "+sent.TextSQL("$1::text::"+c.kind, c.kind == "bpchar"), []any{form}, &form)
		if sqlClass(err, "22") {
			return nil
		}
		if c.own = err == nil; c.own {
			w.and(c.quoted+"::"+c.kind+" = ?::text::"+c.kind, string(f.Key))
		}
	}
	aggregate := ""
	if !c.own {
		w.and(sent.TextSQL(c.quoted, false)+" = ?::text", string(f.Key))
	}
	for _, name := range before {
		w.and(t.columns[name].quoted + " IS NULL")
	}
	if f.Aggregate != nil {
		names := t.present(t.Aggregate)
		if len(names) == 1 && t.columns[names[0]].own && slices.Contains([]string{"text", "character varying"}, t.columns[names[0]].kind) {
			aggregate = names[0]
			w.and(t.columns[aggregate].quoted+"::text = ?::text", string(f.Aggregate))
		} else {
			w.and(t.firstText(t.Aggregate)+" = ?::text", string(f.Aggregate))
		}
	}
	if f.Type != nil {
		w.and(t.firstText(t.Type)+" = ?::text", string(f.Type))
	}
	lacking, big := t.lacking(key, aggregate, "")
	if !c.own {
		if t.bytes() > smallTable {
			return not(fmt.Sprintf("it is large, and its column %s has type %s, which no index compares without code of the table's owner", key, c.kind))
		}
		lacking, big = slices.Sorted(maps.Keys(t.leaves)), false
	}
	if big {
		out.missing = append(out.missing, MissingIndex{t.Schema + "." + t.Table, "it is large, and has no index on " + key, t.indexSQL(key, lacking)})
		return not("it is large, and no index begins with the column " + key)
	}
	_, tx := t.transaction()
	ordered := false
	if tx != "" && len(lacking) == 0 {
		unordered, _ := t.lacking(key, aggregate, tx)
		ordered = len(unordered) == 0
	}
	reading := keyReading{t: t, where: &w, indexed: len(lacking) == 0, most: most, f: f}
	found, more, err := reading.run(ctx, a, &ordered, tx)
	for i := range found {
		found[i].key = form
	}
	out.forms = append(out.forms, form)
	var refusal *sent.Refusal
	switch {
	case errors.As(err, &refusal):
		out.notes = append(out.notes, refusal.Error()+": it is not searched")
		return nil
	case sqlClass(err, "57014") && ctx.Err() == nil:
		out.missing = append(out.missing, MissingIndex{t.Schema + "." + t.Table, fmt.Sprintf("it was not read within %s", keyTimeout), t.indexSQL(key, lacking)})
		return not(fmt.Sprintf("reading it took longer than %s", keyTimeout))
	case sqlClass(err, "42501"):
		return not("permission denied: GRANT SELECT ON " + t.name)
	case sent.IsUndefinedTable(err):
		return nil
	case sqlClass(err, "42883"):
		return not(fmt.Sprintf("its column %s has type %s, which has no equality", key, c.kind))
	case err != nil:
		return explain("search the key in "+t.name, err)
	}
	if more && !ordered {
		lacking, _ := t.lacking(key, aggregate, tx)
		out.missing = append(out.missing, MissingIndex{t.Schema + "." + t.Table, fmt.Sprintf("more than %d of its rows have this key, and no index has them in order", len(found)), t.indexSQL(key, lacking)})
		out.notes = append(out.notes, fmt.Sprintf("%s has more rows of this key than were read, and which are the newest is not known without an index", t.name))
	}
	out.rows, out.more = append(out.rows, found...), out.more || more
	return nil
}

// keyReading reads rows of one table.
type keyReading struct {
	t       *keyTable
	f       *EventFilter
	where   *where
	indexed bool
	most    int
}

// run reads the rows. With an index it reads them in the order of their transactions; otherwise in
// any order, and sorts them.
func (k *keyReading) run(ctx context.Context, a *Admin, ordered *bool, tx string) (list []keyRow, more bool, err error) {
	err = sent.ReadTable(ctx, a.db, k.t.name, func(of pgx.Tx) (err error) {
		if err := k.t.checkUnaltered(ctx, of); err != nil {
			return err
		}
		settings := fmt.Sprintf("SET LOCAL statement_timeout = %d", keyTimeout.Milliseconds())
		if k.indexed { // old statistics must not lead to reading the whole table
			settings += "; SET LOCAL enable_seqscan = off"
		}
		if _, err := of.Exec(ctx, settings); err != nil {
			return err
		}
		if !*ordered {
			if more, err = k.part(ctx, of, "", "", maxExamined, &list); err == nil {
				slices.SortStableFunc(list, newerRow)
				if len(list) > k.most && !more {
					list, more, *ordered = list[:k.most], true, true // all rows were seen
				}
			}
			return err
		}
		quoted := "t." + pgx.Identifier{tx}.Sanitize()
		if more, err = k.part(ctx, of, " AND "+quoted+" IS NOT NULL", " ORDER BY "+quoted+" DESC", k.most, &list); err != nil || more {
			return err
		}
		more, err = k.part(ctx, of, " AND "+quoted+" IS NULL", "", k.most-len(list), &list)
		return err
	})
	return list, more, err
}

// newerRow orders rows by their transactions, and rows without one by the time in the row.
func newerRow(a, b keyRow) int {
	if a.tx != nil || b.tx != nil {
		return -compareOr(a.tx, b.tx, func(a, b int64) int { return cmp.Compare(a, b) })
	}
	return -compareOr(a.at, b.at, time.Time.Compare)
}

// compareOr compares two values of which each may be unknown. An unknown value is less than a known
// one.
func compareOr[T any](a, b *T, compare func(a, b T) int) int {
	switch {
	case a != nil && b != nil:
		return compare(*a, *b)
	case a != nil:
		return 1
	case b != nil:
		return -1
	}
	return 0
}

// partSQL reads rows as rowSQL does, with one byte more than listText of each text, and with the
// digest of the whole id.
const partSQL = `SELECT r.leaf, array(SELECT r.leaf UNION SELECT relid::oid FROM pg_partition_ancestors(r.leaf) relid), r.tx,
		CASE WHEN current_setting('track_commit_timestamp')::bool AND r.tx BETWEEN greatest(3, next - 2147483648) AND next - 1
			THEN pg_xact_commit_timestamp((r.tx & 4294967295)::text::xid) END,
		CASE WHEN pg_is_in_recovery() THEN '0/0' ELSE pg_current_wal_insert_lsn() END,
		left(r.id, %[1]d), left(r.aggregate, %[1]d), left(r.type, %[1]d), r.at, CASE WHEN r.tx > 0 THEN %[2]s END
	FROM (SELECT t.tableoid AS leaf, %[3]s AS tx, %[4]s AS id, %[5]s AS utf8, %[6]s AS aggregate, %[7]s AS type, %[8]s AS at
			FROM %[9]s t WHERE %[10]s OFFSET 0) r,
		(SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) n`

// part appends rows, no more than most, and reports whether there are more.
func (k *keyReading) part(ctx context.Context, of pgx.Tx, condition, order string, most int, list *[]keyRow) (more bool, err error) {
	t := k.t
	tx, column := t.transaction()
	padded := []bool{}
	ids := t.present(t.ID)
	for _, id := range ids {
		padded = append(padded, t.columns[id].kind == "bpchar")
	}
	utf8 := (&sent.Description{ID: ids, Padded: padded}).IDSQL()
	only := "ONLY "
	if t.parent {
		only = ""
	}
	from := k.where.sql.String() + condition + order + fmt.Sprintf(" LIMIT %d", most+1)
	sql := fmt.Sprintf(partSQL, listText+1, sent.DigestSQL("r.tx", "r.utf8"), tx, t.firstText(t.ID), utf8, t.firstText(t.Aggregate), t.firstText(t.Type), t.timestamp(), only+t.name, from)
	rows, err := of.Query(ctx, sql, append([]any{again}, k.where.args...)...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	begun := len(*list)
	for size := 0; rows.Next(); {
		if len(*list)-begun == most || size > keyBytes {
			return true, nil
		}
		r := keyRow{outboxRow: outboxRow{table: t.Schema + "." + t.Table, noColumn: column == ""}}
		var id *string
		if err := rows.Scan(&r.leaf, &r.relations, &r.tx, &r.committedAt, &r.seen, &id, &r.aggregate, &r.kind, &r.at, &r.digest); err != nil {
			return false, err
		}
		for _, value := range rows.RawValues() {
			size += len(value)
		}
		r.committedAt, r.at = utc(r.committedAt), utc(r.at)
		for _, v := range []struct {
			name  string
			value *string
		}{{"id", id}, {"aggregate", r.aggregate}, {"type", r.kind}} {
			if v.value != nil && len([]rune(*v.value)) > listText {
				*v.value = string([]rune(*v.value)[:listText])
				r.cut = append(r.cut, v.name)
			}
		}
		if id != nil {
			r.id = *id
		}
		*list = append(*list, r)
	}
	return false, rows.Err()
}
