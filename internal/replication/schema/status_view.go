// The view cdc_relay.outbox_status, which an operator may ask for: the SQL of it. The relay never
// reads it.

package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// statusView is the view's name in the schema.
const statusView = "outbox_status"

// statusTable is an outbox table as the view shows it.
type statusTable struct {
	Schema string `json:"schema"`
	Table  string `json:"table"`
	ID     string `json:"id"`               // the id column
	Time   string `json:"time,omitempty"`   // the column with the event's time; "": none
	Tx     string `json:"tx"`               // the column with the row's transaction
	Padded bool   `json:"padded,omitempty"` // the id is of type char(n)
}

func (t statusTable) quoted() string {
	return source.QuoteName(t.Schema) + "." + source.QuoteName(t.Table)
}

// statusTables are the tables of each slot that has asked for the view. The view's comment keeps
// them, so that one relay's init makes the view again with the tables of the others.
type statusTables map[string][]statusTable

// statusComment begins the comment; the tables follow as JSON.
const statusComment = "Rows of the outbox tables with their status. Made by cdc-relay init --status-view, from: "

func (s statusTables) comment() (string, error) {
	list, err := json.Marshal(s)
	return statusComment + string(list), err
}

// readStatusComment reads what comment has written; none of anything else.
func readStatusComment(comment string) statusTables {
	s := statusTables{}
	if list, ours := strings.CutPrefix(comment, statusComment); ours && json.Unmarshal([]byte(list), &s) != nil {
		return statusTables{}
	}
	return s
}

// sql makes the view of all tables, and the index by which it finds the deferred row of an id.
func (s statusTables) sql() ([]string, error) {
	var parts []string
	for _, slot := range slices.Sorted(maps.Keys(s)) {
		for _, t := range s[slot] {
			parts = append(parts, t.sql(slot))
		}
	}
	comment, err := s.comment()
	return []string{
		"CREATE INDEX IF NOT EXISTS retry_id ON cdc_relay.retry (substring(id, 1, 200), slot)",
		"CREATE OR REPLACE VIEW cdc_relay." + statusView + " AS\n" + strings.Join(parts, "\nUNION ALL\n"),
		"COMMENT ON VIEW cdc_relay." + statusView + " IS " + source.QuoteText(comment),
	}, err
}

// sql is one table's part of the view.
//
// A row is processed when the sent set has it (package sent): the broker has confirmed it. That and
// the retry tables are read in one snapshot. Every other row that does not wait is new: whether it
// is still to be sent, or was written before the slot, the view does not know. An id whose text
// depends on the settings of whoever reads the view is of no row of the sent set.
//
// Everything volatile is behind OFFSET 0, so that the planner takes a view of one table apart: it
// finds the newest rows by an index of the table, and only then looks into the retry tables, by
// their indexes on the id.
func (t statusTable) sql(slot string) string {
	at := "NULL::timestamptz"
	if t.Time != "" {
		at = "t." + source.QuoteName(t.Time)
	}
	column := "t." + source.QuoteName(t.ID)
	// as the stream has it
	id := "CASE WHEN " + column + " IS NOT NULL THEN " + tableread.TextSQL(column, t.Padded) + " END"
	same := func(row string) string {
		return fmt.Sprintf("%[1]s.slot = %[2]s AND %[1]s.system_id = (SELECT system_identifier::text FROM pg_catalog.pg_control_system())\n"+
			"        AND substring(%[1]s.id, 1, 200) = substring(convert_to(%[3]s, 'UTF8'), 1, 200) AND %[1]s.id = convert_to(%[3]s, 'UTF8')\n"+
			"        AND (%[1]s.tx IS NULL OR x.tx IS NULL OR %[1]s.tx = x.tx)",
			row, source.QuoteText(slot), id)
	}
	return fmt.Sprintf(`SELECT %[1]s::text AS slot, %[2]s::text AS table_name, %[3]s::text AS id,
    CASE WHEN r.since IS NOT NULL THEN 'deferred' WHEN d.since IS NOT NULL THEN 'failed' WHEN x.sent THEN 'processed' ELSE 'new' END AS status,
    %[4]s AS event_time, x.committed_at, coalesce(r.since, d.since) AS since, r.next_attempt, nullif(coalesce(r.reason, d.reason), '') AS reason
FROM %[5]s t
CROSS JOIN LATERAL (SELECT CASE WHEN current_setting('track_commit_timestamp')::bool AND w.tx BETWEEN greatest(3, w.next - 2147483648) AND w.next - 1
            THEN pg_xact_commit_timestamp((w.tx & 4294967295)::text::xid) END AS committed_at, w.tx,
        EXISTS (SELECT FROM cdc_relay.sent s WHERE s.slot = %[1]s AND s.at < 'infinity' AND s.chunk = w.tx >> 13
            AND s.relation IN (SELECT t.tableoid UNION ALL SELECT a::oid FROM pg_partition_ancestors(t.tableoid) a)
            AND %[7]s = ANY (s.digests)) AS sent
    FROM (SELECT %[8]s AS tx, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) w OFFSET 0) x
LEFT JOIN LATERAL (SELECT f.deferred_at AS since, f.next_attempt, f.reason FROM cdc_relay.retry f
    WHERE %[6]s
    ORDER BY f.incarnation, f.commit_lsn, f.idx LIMIT 1) r ON true
LEFT JOIN LATERAL (SELECT f.died_at AS since, f.reason FROM cdc_relay.dead_letter f
    WHERE %[6]s
        AND f.state = 'open' ORDER BY f.died_at DESC, f.n DESC LIMIT 1) d ON true`,
		source.QuoteText(slot), source.QuoteText(t.Schema+"."+t.Table), column, at, t.quoted(), same("f"),
		sent.DigestSQL("w.tx", "CASE WHEN pg_typeof("+column+") = ANY ('"+fixedTypes+"'::regtype[]) THEN convert_to("+id+", 'UTF8') END"),
		sent.TxSQL("t."+source.QuoteName(t.Tx)+"::text::xid8", false)) // whichever of the two it is
}

// fixedTypes are the types of an id whose text depends on no setting.
const fixedTypes = "{text,varchar,bpchar,name,uuid,smallint,integer,bigint,numeric,boolean,xid8}"

// columns are those that the view reads, without the system's own.
func (t statusTable) columns() []string {
	if t.Time == "" || t.Time == t.ID {
		return []string{t.ID, t.Tx}
	}
	return []string{t.ID, t.Tx, t.Time}
}

// grants are the rights that the view's owner needs on a table.
func (t statusTable) grants(owner string) []string {
	var columns []string
	for _, name := range t.columns() {
		columns = append(columns, source.QuoteName(name))
	}
	return []string{
		"GRANT USAGE ON SCHEMA " + source.QuoteName(t.Schema) + " TO " + source.QuoteName(owner),
		"GRANT SELECT (" + strings.Join(append(columns, "tableoid"), ", ") + ") ON " + t.quoted() + " TO " + source.QuoteName(owner),
	}
}
