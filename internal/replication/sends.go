package replication

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
)

// sends is what makes the server send our rows, by OIDs: a publication, a table or a membership that was removed and
// made anew looks as before by name, but the rows committed in between were never sent, whoever looked when. It is
// remembered with the slot, so that this shows across restarts too.
type sends struct {
	Publication uint32 `json:"publication,omitempty"` // pg_publication.oid; 0: nothing is remembered
	// Version is the xmin of the publication's row, which every ALTER PUBLICATION of its options, name or owner changes, and
	// nothing else (not VACUUM FREEZE): inserts that were switched off and on again between two looks show by it alone.
	Version string               `json:"version,omitempty"`
	Tables  map[string]sentTable `json:"tables,omitempty"` // by quoted name
	// AsFound is where the WAL ended when the slot was taken as another program had left it, if a table is partitioned; else 0. Rows
	// of partitions that are none any more may have been committed before it, and come under names that are not ours: see detachedUntil.
	AsFound pglogrepl.LSN `json:"as_found,omitempty"`
	// None are tables, by OID, of which an operator has said that they were no partitions of ours.
	None []uint32 `json:"none,omitempty"`
	// Foreign are tables, by OID, that the publication lists by name and whose rows are not events: those that it listed
	// and the configuration lacked when the slot was first used, and those that an operator ignores.
	Foreign []uint32 `json:"foreign,omitempty"`
	// Prefixes of messages that the slot has relayed, in ascending order.
	Prefixes []string `json:"prefixes,omitempty"`
}

// found keeps what is remembered of how the slot was found, and which tables of the publication were foreign then.
func (s sends) found(was sends) sends {
	s.AsFound, s.None = was.AsFound, was.None
	if was.Publication == s.Publication {
		s.Foreign = was.Foreign
		return s
	}
	relayed := func(oid uint32) bool {
		for _, t := range was.Tables {
			if (t.OID == oid || slices.Contains(t.Also, oid)) && !slices.Contains(was.Foreign, oid) {
				return true
			}
		}
		return false
	}
	s.Foreign = slices.DeleteFunc(slices.Clone(s.Foreign), relayed)
	return s
}

// droppedPrefixes are those of messages that were relayed and are not configured any more.
func (s sends) droppedPrefixes(c *Config) []string {
	return slices.DeleteFunc(slices.Clone(s.Prefixes), func(prefix string) bool { return prefix == c.Messages.Prefix })
}

type sentTable struct {
	OID uint32 `json:"oid"`
	// Through are the memberships that the table is sent through, of pg_publication_rel and pg_publication_namespace:
	// its own, a partitioned parent's, its schema's. None: FOR ALL TABLES, which only the publication itself can end.
	Through []uint32 `json:"through,omitempty"`
	// Also are other tables whose rows are ours: those that had the name before, and those that the stream showed under it.
	// Rows of theirs may still be to come, whatever they are called by then. In ascending order; a few bytes for each time
	// that the table is made anew, so it is not cut.
	Also []uint32 `json:"also,omitempty"`
}

// uninterrupted reports whether the table was sent all the time between two looks: through one membership that was there
// at both.
func (t sentTable) uninterrupted(was sentTable) bool {
	if len(was.Through) == 0 || len(t.Through) == 0 {
		return len(was.Through) == len(t.Through)
	}
	return slices.ContainsFunc(t.Through, func(oid uint32) bool { return slices.Contains(was.Through, oid) })
}

// oid is by which a table is looked up: what is remembered, else what the catalogue said of its name.
func (s sends) oid(t decode.Table) uint32 {
	if was, known := s.Tables[quoteTable(t)]; known {
		return was.OID
	}
	return t.OID
}

// after adds to what is sent now the tables that had the names before, and the tables and prefixes that the slot has
// relayed and that are not configured any more: another relay of the slot may have them, and a row of theirs that the
// publication still sends must not pass unseen. A table that is ours now is foreign no longer.
func (s sends) after(was sends) sends {
	var ours []uint32
	for name, t := range s.Tables {
		old := was.Tables[name]
		t = t.with(append(slices.Clone(old.Also), old.OID)...)
		s.Tables[name] = t
		ours = append(append(ours, t.OID), t.Also...)
	}
	for name, t := range was.Tables {
		if _, configured := s.Tables[name]; !configured {
			s.Tables[name] = t
		}
	}
	if len(s.Tables) == 0 {
		s.Tables = nil // as it comes back from the table
	}
	s.Foreign = slices.DeleteFunc(slices.Clone(s.Foreign), func(oid uint32) bool { return slices.Contains(ours, oid) })
	if len(s.Foreign) == 0 {
		s.Foreign = nil // as it comes back from the table
	}
	s.Prefixes = slices.Concat(s.Prefixes, was.Prefixes)
	slices.Sort(s.Prefixes)
	s.Prefixes = slices.Compact(s.Prefixes)
	return s
}

// withPartitions adds the partitions of the tables. A slot that is adopted may hold rows that come under the names of their
// partitions, because the publication did not have publish_via_partition_root when they were committed.
func (s sends) withPartitions(ctx context.Context, q querier) (sends, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var own []uint32
	for _, t := range s.Tables {
		own = append(own, t.OID)
	}
	all := s
	all.Tables = map[string]sentTable{}
	for name, t := range s.Tables {
		var parts []uint32
		// Not pg_partition_tree, which leaves out those that are being detached concurrently: transactions may still write to them.
		err := q.QueryRow(ctx, `WITH RECURSIVE tree AS (
				SELECT inhrelid FROM pg_inherits WHERE inhparent = $1
				UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.inhrelid)
			SELECT array(SELECT c.oid FROM tree JOIN pg_class c ON c.oid = inhrelid WHERE c.relispartition AND c.relkind <> 'p' AND c.oid <> ALL ($2::oid[]))`, t.OID, own).Scan(&parts)
		if err != nil {
			return s, fmt.Errorf("read partitions of %s: %w", name, err)
		}
		all.Tables[name] = t.with(parts...)
	}
	return all, nil
}

// with adds tables whose rows are ours.
func (t sentTable) with(oids ...uint32) sentTable {
	also := slices.DeleteFunc(slices.Concat(t.Also, oids), func(oid uint32) bool { return oid == 0 || oid == t.OID })
	slices.Sort(also)
	if t.Also = slices.Compact(also); len(t.Also) == 0 {
		t.Also = nil // as it comes back from the table
	}
	return t
}

// ours are the configured tables with every OID by which their rows may come.
func (s sends) ours(tables []decode.Table) []decode.Table {
	tables = slices.Clone(tables)
	for i := range tables {
		t := s.Tables[quoteTable(tables[i])]
		tables[i].OID, tables[i].Also = t.OID, t.Also
	}
	return tables
}

// lookAtSends compares the publication with what the relay needs and with what is remembered of it. It changes nothing:
// a relay that stands by, or has yet to lead, may have a configuration that is never used. next is what is to be
// remembered by whoever leads: with tables and prefixes configured since, or a table created again while the publication
// had it without its being listed.
func lookAtSends(ctx context.Context, q querier, c *Config, rec *record) (next sends, err error) {
	was := rec.sends()
	now, err := checkPublication(ctx, q, c, was)
	if err != nil || rec == nil {
		return now, err
	}
	return now.found(was).after(was), nil
}

// rememberSends makes next durable in the place of what rec has, under the epoch of the term that holds the slot, and
// says what is relayed from now on. from is the position that the session reads from.
//
// Only the session that holds the slot may do this. What a table's rows are is decided by the leader that reads them: a
// standby that wrote the table down would make a promise that the leader, with another configuration, does not keep.
func rememberSends(ctx context.Context, q querier, c *Config, epoch int64, rec *record, next sends, from pglogrepl.LSN) error {
	was := rec.sends()
	if reflect.DeepEqual(was, next) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	tag, err := q.Exec(ctx, `UPDATE cdc_relay.slots SET sends = $2 WHERE slot = $1 AND sends::text = $3 AND epoch = $4 AND state = 'ready'`,
		c.Slot, next, rec.SendsText, epoch)
	if err != nil {
		return fmt.Errorf("write cdc_relay.slots: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errSendsChanged
	}
	for name := range next.Tables {
		if _, known := was.Tables[name]; !known {
			c.Log.Info("table added: its rows are relayed from this position on",
				zap.String("table", name), zap.Stringer("lsn", from), zap.String("slot", c.Slot))
			warnOfRowsBefore(ctx, q, c, name, next.Tables[name])
		}
	}
	for _, prefix := range next.Prefixes {
		if !slices.Contains(was.Prefixes, prefix) {
			c.Log.Info("message prefix added: its messages are relayed from this position on",
				zap.String("message_prefix", prefix), zap.Stringer("lsn", from), zap.String("slot", c.Slot))
		}
	}
	return nil
}

// errSendsChanged: another session, or an operator, wrote the slot's row between our look and our write.
var errSendsChanged = errors.New("what is remembered of the publication was changed meanwhile")

// rememberTable makes it durable, under the epoch, that the rows of a table of this OID are those of t.
func rememberTable(ctx context.Context, q querier, c *Config, epoch int64, t decode.Table, oid uint32) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	rec, err := readRecord(ctx, q, c.Slot)
	if err != nil {
		return err
	}
	was := rec.sends()
	name := quoteTable(t)
	next := was
	next.Tables = maps.Clone(was.Tables)
	if _, known := was.Tables[name]; !known {
		return fmt.Errorf("remember table %s by its OID %d: the slot's row does not know it", t, oid)
	}
	next.Tables[name] = was.Tables[name].with(oid)
	if err := rememberSends(ctx, q, c, epoch, rec, next, 0); err != nil {
		return fmt.Errorf("remember table %s by its OID %d: %w", t, oid, err)
	}
	return nil
}

// sentBefore is what is remembered of a slot that is adopted: nothing of another system's, whose OIDs mean other tables.
func (r *record) sentBefore(id identity) sends {
	if r.SystemID != id.SystemID {
		return sends{}
	}
	return r.Sends
}

// sends is what is remembered of a slot that may be used; nothing of one that is still to be created or adopted.
func (r *record) sends() sends {
	if r == nil || r.State != stateReady {
		return sends{}
	}
	return r.Sends
}
