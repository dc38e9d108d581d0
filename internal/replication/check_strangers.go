// What Check says of rows that wait in another program's slot and may be the outbox's under a name that it has no more.

package replication

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/decode"
)

// inserts are how many of each table a slot has, by its OID.
type inserts map[uint32]*inserted

type inserted struct {
	table   string // as the stream names it
	columns []decode.Column
	rows    int
}

func (s inserts) note(frame []byte) error {
	if len(frame) < 5 {
		return nil
	}
	switch pglogrepl.MessageType(frame[0]) {
	case pglogrepl.MessageTypeRelation:
		m, err := pglogrepl.Parse(frame)
		if err != nil {
			return fmt.Errorf("decode a Relation frame: %w", err)
		}
		if rel, ok := m.(*pglogrepl.RelationMessage); ok {
			t := s[rel.RelationID]
			if t == nil {
				t = &inserted{}
				s[rel.RelationID] = t
			}
			t.table, t.columns = rel.Namespace+"."+rel.RelationName, t.columns[:0]
			for _, c := range rel.Columns {
				t.columns = append(t.columns, decode.Column{Name: c.Name, TypeOID: c.DataType})
			}
		}
	case pglogrepl.MessageTypeInsert:
		if t := s[binary.BigEndian.Uint32(frame[1:])]; t != nil {
			t.rows++
		}
	default:
	}
	return nil
}

// strangers warns of inserts into tables that are not ours and may have been: those that are gone, and those that fit the mapping of
// a partitioned outbox, as a partition that was detached; at these the stream stops. It has nothing that would tell whose partition it was.
func (k *checker) strangers(ctx context.Context, all inserts, sent sends) {
	var roots, others []uint32
	for _, t := range sent.Tables {
		roots = append(roots, t.OID)
	}
	for oid, t := range all {
		if t.rows > 0 {
			others = append(others, oid)
		}
	}
	const name = "rows of other tables"
	var parted, gone, there []uint32
	err := k.pool.QueryRow(ctx, `WITH stranger AS (
			SELECT o, EXISTS (SELECT FROM pg_class WHERE oid = o) AS there FROM unnest($1::oid[]) o
			WHERE o <> ALL ($2::oid[]) AND NOT EXISTS (SELECT FROM pg_partition_ancestors(o::regclass) a(relid) WHERE a.relid::oid = ANY ($2::oid[])))
		SELECT array(SELECT oid FROM pg_class WHERE oid = ANY ($2::oid[]) AND relkind = 'p'),
			array(SELECT o FROM stranger WHERE NOT there), array(SELECT o FROM stranger WHERE there)`, others, roots).Scan(&parted, &gone, &there)
	if k.unasked(name, err) {
		return
	}
	found := gone
	for _, oid := range there {
		fits := func(t decode.Table) bool {
			return slices.Contains(parted, sent.Tables[quoteTable(t)].OID) && t.Check(all[oid].columns, k.c.Columns) == nil
		}
		if slices.ContainsFunc(k.c.Tables, fits) {
			found = append(found, oid)
		}
	}
	if len(found) == 0 {
		return
	}
	var words []string
	for _, oid := range found {
		words = append(words, fmt.Sprintf("%s (%d)", all[oid].table, all[oid].rows))
	}
	slices.Sort(words)
	k.warn(name, "in the slot wait inserts of tables that do not exist any more or look like partitions that were detached: "+strings.Join(words, ", ")+
		". The relay stops at those with the columns of a partitioned outbox (exit 3), until somebody says whose they are; the others are not sent",
		"if they are the outbox's: let the other program send them before the relay takes the slot, or attach the partition again")
}
