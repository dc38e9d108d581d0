// What the publication sends, by OIDs, as it is remembered with the slot.

package publication

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// State is what makes the server send our rows, by OIDs: a publication, a table or a membership
// that was removed and created again has the same name as before, but the rows committed in between
// were never sent. It is remembered with the slot, so that this shows across restarts too.
type State struct {
	// pg_publication.oid; 0: nothing is remembered
	Publication uint32 `json:"publication,omitempty"`
	// Version is the xmin of the publication's row, which every ALTER PUBLICATION of its options,
	// name or owner changes, and nothing else (not VACUUM FREEZE): it alone shows inserts that were
	// switched off and on again between two checks.
	Version string           `json:"version,omitempty"`
	Tables  map[string]Table `json:"tables,omitempty"` // by quoted name
	// Foreign are tables, by OID, that the publication lists by name and whose rows are not events:
	// those that were listed but not configured when the slot was first used, and those that an
	// operator ignores.
	Foreign []uint32 `json:"foreign,omitempty"`
	// Prefixes of messages that the slot has relayed, in ascending order.
	Prefixes []string `json:"prefixes,omitempty"`
}

// Equal reports whether both states are the same text in the table. A list or map that is empty
// here is left out there, and is nil when it is read back: compared as values they would differ at
// every check, and each check would write.
func (s State) Equal(other State) bool { return bytes.Equal(s.Text(), other.Text()) }

// Text is the state as it is written to the table.
func (s State) Text() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // it has only numbers and texts
	}
	return text
}

// KeepForeign keeps which tables of the publication were foreign when the slot was first used.
func (s State) KeepForeign(was State) State {
	if was.Publication == s.Publication {
		s.Foreign = was.Foreign
		return s
	}
	relayed := func(oid uint32) bool {
		for _, t := range was.Tables {
			if (t.OID == oid || slices.Contains(t.Former, oid)) && !slices.Contains(was.Foreign, oid) {
				return true
			}
		}
		return false
	}
	s.Foreign = slices.DeleteFunc(slices.Clone(s.Foreign), relayed)
	return s
}

// DroppedPrefixes are those of messages that were relayed and are no longer configured.
func (s State) DroppedPrefixes(c *source.Config) []string {
	return slices.DeleteFunc(slices.Clone(s.Prefixes), func(prefix string) bool { return prefix == c.Messages.Prefix })
}

// Table is how one outbox table is sent: its OID, the memberships in the publication, and the other
// OIDs under which its rows may come.
type Table struct {
	OID uint32 `json:"oid"`
	// Through are the memberships that the table is sent through, of pg_publication_rel and
	// pg_publication_namespace: its own, a partitioned parent's, its schema's. None: FOR ALL
	// TABLES, which only the publication itself can end.
	Through []uint32 `json:"through,omitempty"`
	// Since is the first transaction, with its epoch, from which on all rows are sent: below it are
	// rows that were there before the table was added, or before the first slot, and nobody has had
	// them sent. AllSent: there are none. 0: not known, as a version before retention has written
	// the record, and then no row counts as sent. Retention alone needs it.
	Since int64 `json:"since,omitempty"`
	// Former are the tables that had the name before, and partitions whose rows come under their
	// own names. An operator accepted each. Their rows may still wait in the slot, under any name,
	// and are ours. In ascending order.
	Former []uint32 `json:"former,omitempty"`
}

// AllSent is Table.Since of a table all of whose rows are sent: no transaction is below it.
const AllSent = 1

// BeginAt notes from which transaction on the rows of those tables are sent of which it is not
// known.
func (s State) BeginAt(since int64) {
	for name, t := range s.Tables {
		if t.Since == 0 {
			t.Since = since
			s.Tables[name] = t
		}
	}
}

// LeaveOut notes that rows below a transaction are not sent, of no table.
func (s State) LeaveOut(since int64) {
	for name, t := range s.Tables {
		t.Since = max(t.Since, since)
		s.Tables[name] = t
	}
}

// KnowsBegin reports whether it is known of every table from which transaction on it is sent.
func (s State) KnowsBegin() bool {
	for _, t := range s.Tables {
		if t.Since == 0 {
			return false
		}
	}
	return true
}

// uninterrupted reports whether the table was sent all the time between two checks: through a
// membership that existed at both.
func (t Table) uninterrupted(was Table) bool {
	if len(was.Through) == 0 || len(t.Through) == 0 {
		return len(was.Through) == len(t.Through)
	}
	return slices.ContainsFunc(t.Through, func(oid uint32) bool { return slices.Contains(was.Through, oid) })
}

// oid returns the OID by which a table is looked up: the remembered OID, otherwise the one that the
// catalogue has for its name.
func (s State) oid(t decode.Table) uint32 {
	if was, known := s.Tables[source.QuoteTable(t)]; known {
		return was.OID
	}
	return t.OID
}

// After adds to what is sent now the tables that had the names before, and the tables and prefixes
// that the slot has relayed and that are no longer configured: another relay of the slot may have
// them configured, and a row of theirs that the publication still sends must not be skipped
// unnoticed. A table that is ours now is no longer foreign.
func (s State) After(was State) State {
	var ours []uint32
	for name, t := range s.Tables {
		old := was.Tables[name]
		t = t.with(append(slices.Clone(old.Former), old.OID)...)
		if old.OID == t.OID { // of another table with the name it is not known
			t.Since = max(t.Since, old.Since)
		}
		s.Tables[name] = t
		ours = append(append(ours, t.OID), t.Former...)
	}
	for name, t := range was.Tables {
		if _, configured := s.Tables[name]; !configured {
			s.Tables[name] = t
		}
	}
	s.Foreign = slices.DeleteFunc(slices.Clone(s.Foreign), func(oid uint32) bool { return slices.Contains(ours, oid) })
	s.Prefixes = slices.Concat(s.Prefixes, was.Prefixes)
	slices.Sort(s.Prefixes)
	s.Prefixes = slices.Compact(s.Prefixes)
	return s
}

// with adds tables whose rows are ours.
func (t Table) with(oids ...uint32) Table {
	former := slices.DeleteFunc(slices.Concat(t.Former, oids), func(oid uint32) bool { return oid == 0 || oid == t.OID })
	slices.Sort(former)
	t.Former = slices.Compact(former)
	return t
}

// Accepts reports whether a table with this OID is a former one of tables, so that its rows count
// as rows of that table.
func (s State) Accepts(tables []decode.Table, oid uint32) bool {
	return slices.ContainsFunc(s.Ours(tables), func(t decode.Table) bool { return slices.Contains(t.Former, oid) })
}

// Ours are the configured tables with every OID by which their rows may come.
func (s State) Ours(tables []decode.Table) []decode.Table {
	tables = slices.Clone(tables)
	for i := range tables {
		t := s.Tables[source.QuoteTable(tables[i])]
		tables[i].OID, tables[i].Former = t.OID, t.Former
	}
	return tables
}

// Skip declares that the rows of a table are not events.
func (s State) Skip(oid uint32) State {
	s.Foreign = append(slices.Clone(s.Foreign), oid)
	slices.Sort(s.Foreign)
	return s
}

// SkipMessages declares that messages of a prefix are not events.
func (s State) SkipMessages(prefix string) State {
	s.Prefixes = slices.DeleteFunc(slices.Clone(s.Prefixes), func(p string) bool { return p == prefix })
	return s
}

// Adopt declares that the rows of tables with these OIDs are those of a remembered table.
func (s State) Adopt(of decode.Table, oids ...uint32) State {
	if s.Tables = maps.Clone(s.Tables); s.Tables == nil { // the slot has relayed messages alone
		s.Tables = map[string]Table{}
	}
	name := source.QuoteTable(of)
	s.Tables[name] = s.Tables[name].with(oids...)
	return s
}
