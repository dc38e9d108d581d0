// What the publication sends, by OIDs, as it is remembered with the slot.

package publication

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

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
	OID uint32 `json:"oid"` // 0: it was relayed on another system, and is not here
	// Through are the memberships that the table is sent through, of pg_publication_rel and
	// pg_publication_namespace: its own, a partitioned parent's, its schema's. None: FOR ALL
	// TABLES, which only the publication itself can end.
	Through []uint32 `json:"through,omitempty"`
	// First is a snapshot, as PostgreSQL's text of it: rows of it were there before the table was
	// sent, and nobody expects this slot to send them. NoRows: there were none. "": not known, as a
	// version before it has written the record; then every row counts as the slot's. It says for
	// which rows retention of another slot of the table waits, and which ones recover leaves out.
	First string `json:"first,omitempty"`
	// Former are the tables that had the name before, and partitions whose rows come under their
	// own names. An operator accepted each. Their rows may still wait in the slot, under any name,
	// and are ours. In ascending order.
	Former []uint32 `json:"former,omitempty"`
}

// NoRows is Table.First of a table all of whose rows are the slot's: a snapshot that sees nothing.
const NoRows = "3:3:"

// BeginAt notes what was there before, of those tables of which it is not known: PostgreSQL's text
// of a snapshot.
func (s State) BeginAt(first string) {
	first = readable(first)
	for name, t := range s.Tables {
		if t.First == "" {
			t.First = first
			s.Tables[name] = t
		}
	}
}

// readable is a snapshot as PostgreSQL reads it back. The one that a slot exports may have an xmin
// above its xmax: everything below xmin is seen, nothing else, and nothing ran (found by
// TestFirstStartCountsARowWhoseTransactionWasOpen; "5129:5128:" is no pg_snapshot).
func readable(snapshot string) string {
	parts := strings.SplitN(snapshot, ":", 3)
	if len(parts) < 3 {
		return snapshot
	}
	xmin, errMin := strconv.ParseUint(parts[0], 10, 64)
	xmax, errMax := strconv.ParseUint(parts[1], 10, 64)
	if errMin != nil || errMax != nil || xmin <= xmax {
		return snapshot
	}
	return parts[0] + ":" + parts[0] + ":"
}

// KnowsBegin reports whether it is known of every table what was there before.
func (s State) KnowsBegin() bool {
	for _, t := range s.Tables {
		if t.First == "" {
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
		switch {
		case old.OID == t.OID:
			t.First = cmp.Or(old.First, t.First)
		case old.OID != 0: // another table with the name: nobody has left its rows to others
			t.First = NoRows
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
