// Groups: the number of deferred rows or dead letters for each reason, destination or type.

package dlq

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Group is the rows that have the same value.
type Group struct {
	Value  *string `json:"value"`   // the first 200 bytes of the value; null for NULL
	Count  int64   `json:"count"`   // the number of rows; with OrMore there may be more
	OrMore bool    `json:"or_more"` // the rows were not counted to the end
	// when the oldest dead letter died, or the first deferred row was committed; null when it is
	// not known
	Oldest *time.Time `json:"oldest"`

	// Of the first deferred row that was refused, its last refusal.
	Reason string `json:"reason,omitempty"`
	// in the form that a filter compares: with # for numbers
	Error     string `json:"error,omitempty"`
	ErrorText string `json:"error_text,omitempty"` // the broker's own text
}

// Groups are the groups of a table, the largest first.
type Groups struct {
	By    string  `json:"group"`
	Items []Group `json:"items"`
	More  bool    `json:"more"` // there are more groups, or may be
}

// The bounds of counting, whatever the tables have.
const (
	maxGroups  = 200
	maxCounted = 10_000  // rows of one group
	maxLooked  = 100_000 // rows of all groups, because each may lie anywhere in the table
	// lookedForError is among how many of the oldest rows of a group one with an error is looked
	// for.
	lookedForError = 100
)

// countedOf returns how many rows of each group are counted when there are so many groups.
func countedOf(groups int) int { return min(maxCounted, maxLooked/max(groups, 1)) }

// grouping is the SQL that counts rows of slot $1 by a value.
type grouping struct {
	with string // the common table g, which has the groups; "" when no index finds them
	// count returns the rest of the statement, which counts each group up to most rows.
	count func(most int) string
}

// GroupNames are the columns by which rows of a table can be counted.
var GroupNames = []string{"reason", "destination", "type"}

// CheckGroup returns an error for a column by which rows cannot be counted, and for a state without
// groups.
func CheckGroup(by, state string) error {
	if !slices.Contains(GroupNames, by) {
		return &BadInput{"group", fmt.Sprintf("is %q, want one of %s", by, strings.Join(GroupNames, ", "))}
	}
	if state == Replaying || state == Purged {
		return &BadInput{"state", fmt.Sprintf("is %q, want open, replayed or discarded with --group", state)}
	}
	return nil
}

// WaitingRows are the deferred rows that wait for a destination.
type WaitingRows struct {
	Events int       // with OrMore there may be more
	OrMore bool      // the rows were not counted to the end
	Oldest time.Time // commit time of the first one, by our clock; zero when none was found
}

// CountWaiting counts the deferred rows of each place. A place with Dest 0 stands for its whole
// exchange or topic.
func CountWaiting(ctx context.Context, db Querier, slot, systemID string, places []sink.Place) (map[sink.Place]WaitingRows, error) {
	if len(places) == 0 {
		return nil, nil
	}
	wholes, lows, highs := make([]int64, len(places)), make([]int64, len(places)), make([]int64, len(places))
	for i, p := range places {
		wholes[i], lows[i], highs[i] = int64(p.ExchangeOrTopic), int64(p.Dest), int64(p.Dest)
		if p.Dest == 0 {
			lows[i], highs[i] = math.MinInt64, math.MaxInt64
		}
	}
	waiting := map[sink.Place]WaitingRows{}
	rows, err := db.Query(ctx, waitingSQL(countedOf(len(places))), again, slot, systemID, wholes, lows, highs)
	if err == nil {
		var i, n int
		var more bool
		var age *float64
		_, err = pgx.ForEachRow(rows, []any{&i, &n, &more, &age}, func() error {
			w := WaitingRows{Events: n, OrMore: more}
			if age != nil {
				w.Oldest = time.Now().Add(-time.Duration(*age * float64(time.Second)))
			}
			waiting[places[i-1]] = w
			return nil
		})
	}
	return waiting, explain("count what waits for paused destinations", err)
}

// Groups counts rows of a table by a column: deferred rows, or dead letters of a state ("" means
// open). It counts each group up to a limit, which is lower when there are many groups; of deferred
// rows by reason or type, it looks at the oldest ones of all groups, up to a limit.
func (a *Admin) Groups(ctx context.Context, of *Table, by, state string) (*Groups, error) {
	if err := CheckGroup(by, state); err != nil {
		return nil, err
	}
	value := map[string]string{"reason": "convert_to(nullif(t.reason, ''), 'UTF8')", "destination": prefixExpression(destinationExpression), "type": prefixExpression("t.type")}[by]
	groups, args := oldestGroups(value), []any{a.slot}
	switch {
	case of == DeadLetters && by == "reason":
		groups, args = reasonGroups, append(args, cmp.Or(state, Open))
	case of == DeadLetters:
		groups, args = valueGroups(value), append(args, cmp.Or(state, Open))
	case by == "destination":
		groups = deferredGroups
	}
	n := 0
	if groups.with != "" {
		if err := a.one(ctx, "count the groups", groups.with+fmt.Sprintf(" SELECT count(*) FROM (SELECT FROM g LIMIT %d) x", maxGroups), []any{again, a.slot}, &n); err != nil {
			return nil, err
		}
	}
	list, err := all(ctx, a, "count the rows", groups.with+groups.count(countedOf(n)), append([]any{again}, args...), func(row pgx.CollectableRow) (g Group, err error) {
		var value []byte
		var spoken *string
		err = row.Scan(&value, &g.Count, &g.OrMore, &g.Oldest, &g.Reason, &g.Error, &spoken)
		g.Value, g.Oldest = text(value), utc(g.Oldest)
		g.Error = strings.ToValidUTF8(g.Error, "")
		if g.ErrorText = g.Error; spoken != nil {
			g.ErrorText = strings.ToValidUTF8(*spoken, "")
		}
		return g, err
	})
	if err != nil {
		return nil, err
	}
	out := &Groups{By: by, Items: []Group{}, More: len(list) > maxGroups || groups.with == "" && len(list) > 0 && list[0].OrMore}
	for _, g := range list[:min(len(list), maxGroups)] {
		same := slices.IndexFunc(out.Items, func(o Group) bool {
			return (o.Value == nil) == (g.Value == nil) && (g.Value == nil || *o.Value == *g.Value)
		})
		switch {
		case g.Count == 0 && !g.OrMore:
		case same < 0:
			out.Items = append(out.Items, g)
		default: // the same value with another class, or in another partition of its topic
			o := &out.Items[same]
			o.Count, o.OrMore = o.Count+g.Count, o.OrMore || g.OrMore
			older := o.Oldest == nil || g.Oldest != nil && g.Oldest.Before(*o.Oldest)
			if older {
				o.Oldest = g.Oldest
			}
			if older && g.Error != "" || o.Error == "" {
				o.Reason, o.Error, o.ErrorText = g.Reason, g.Error, g.ErrorText
			}
		}
	}
	slices.SortStableFunc(out.Items, func(a, b Group) int { return cmp.Compare(b.Count, a.Count) })
	return out, nil
}

// waitingSQL counts the deferred rows of the exchanges and topics $3 whose destination is from $4
// to $5. The index gives the first row of each destination. The oldest row is looked for among the
// first maxGroups destinations. Rows of another system are in the same index.
func waitingSQL(most int) string {
	of := "FROM cdc_relay.retry t WHERE t.slot = $1 AND t.exchange_or_topic = p.whole AND "
	next := func(after string) string {
		return "(SELECT t.dest " + of + "t.dest <= p.high AND t.dest " + after + " ORDER BY t.dest LIMIT 1)"
	}
	return fmt.Sprintf(`SELECT p.i, least(c.n, %[1]d), c.seen > %[1]d, extract(epoch FROM clock_timestamp() - o.commit_time)::float8
		FROM unnest($3::bigint[], $4::bigint[], $5::bigint[]) WITH ORDINALITY p (whole, low, high, i)
			CROSS JOIN LATERAL (SELECT count(*) AS seen, count(*) FILTER (WHERE system_id = $2) AS n
				FROM (SELECT t.system_id %[2]s t.dest BETWEEN p.low AND p.high LIMIT %[1]d + 1) x) c
			CROSS JOIN LATERAL (WITH RECURSIVE g AS (%[3]s UNION ALL SELECT n.* FROM g CROSS JOIN LATERAL %[4]s n)
				SELECT min(f.commit_time) AS commit_time FROM (SELECT dest FROM g LIMIT %[5]d) g CROSS JOIN LATERAL (SELECT x.commit_time
					FROM (SELECT t.system_id, t.commit_time %[2]s t.dest = g.dest ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT %[1]d) x
					WHERE x.system_id = $2 LIMIT 1) f) o`, most, of, next(">= p.low"), next("> g.dest"), maxGroups)
}

// reasonGroups counts the dead letters of state $2 by class and reason. ORDER BY names the index:
// without it the planner reads the whole table to find the few rows of a rare state.
var reasonGroups = grouping{ByState, func(most int) string {
	return fmt.Sprintf(` SELECT convert_to(g.reason, 'UTF8'), least(c.n, %[1]d), c.n > %[1]d, o.died_at, '', '', NULL::text
	FROM g CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM cdc_relay.dead_letter t
			WHERE t.slot = $1 AND t.state = g.state AND t.class = g.class AND t.reason = g.reason
			ORDER BY t.died_at DESC, t.n DESC LIMIT %[1]d + 1) x) c
		CROSS JOIN LATERAL (SELECT t.died_at FROM cdc_relay.dead_letter t
			WHERE t.slot = $1 AND t.state = g.state AND t.class = g.class AND t.reason = g.reason ORDER BY t.died_at, t.n LIMIT 1) o
	WHERE g.state = $2 LIMIT %[2]d`, most, maxGroups+1)
}}

// valueGroups counts the dead letters of state $2 by a value, with an index on the beginning of the
// value. The index does not have the state, so of each value only the oldest rows are looked at, up
// to a limit.
func valueGroups(value string) grouping {
	counted := func(most int, condition string) string {
		return fmt.Sprintf(`(SELECT count(*) FILTER (WHERE x.state = $2) AS n, count(*) > %[1]d AS more, min(x.died_at) FILTER (WHERE x.state = $2) AS oldest
			FROM (SELECT t.state, t.died_at FROM cdc_relay.dead_letter t WHERE t.slot = $1 AND %[2]s %[3]s ORDER BY t.died_at, t.n LIMIT %[1]d + 1) x)`, most, value, condition)
	}
	next := "(SELECT " + value + " AS v FROM cdc_relay.dead_letter t WHERE t.slot = $1 AND " + value + " IS NOT NULL"
	last := " ORDER BY " + value + " LIMIT 1)"
	return grouping{fmt.Sprintf(`WITH RECURSIVE g AS (%s%s UNION ALL SELECT n.v FROM g CROSS JOIN LATERAL %s AND %s > g.v%s n)`, next, last, next, value, last), func(most int) string {
		return fmt.Sprintf(` SELECT g.v, least(c.n, %[1]d), c.more, c.oldest, '', '', NULL::text FROM g CROSS JOIN LATERAL %[2]s c
			UNION ALL SELECT NULL, least(c.n, %[1]d), c.more, c.oldest, '', '', NULL::text FROM %[3]s c LIMIT %[4]d`,
			most, counted(most, "= g.v"), counted(most, "IS NULL"), maxGroups+1)
	}}
}

// deferredGroups counts the deferred rows by destination. Each group has its first row, and an
// error from the first refused row among its oldest lookedForError rows. The other rows wait behind
// that one, or came while the broker was away, and have no error.
var deferredGroups = func() grouping {
	next := func(after string) string {
		return "(SELECT t.exchange_or_topic, t.dest FROM cdc_relay.retry t WHERE t.slot = $1" + after + " ORDER BY t.exchange_or_topic, t.dest LIMIT 1)"
	}
	of := "FROM cdc_relay.retry t WHERE t.slot = $1 AND t.exchange_or_topic = g.exchange_or_topic AND t.dest = g.dest"
	with := fmt.Sprintf("WITH RECURSIVE g AS (%s UNION ALL SELECT n.* FROM g CROSS JOIN LATERAL %s n)", next(""), next(" AND (t.exchange_or_topic, t.dest) > (g.exchange_or_topic, g.dest)"))
	return grouping{with, func(most int) string {
		return fmt.Sprintf(` SELECT f.v, least(c.n, %[1]d), c.n > %[1]d, f.commit_time, coalesce(e.reason, f.reason), coalesce(e.error, ''), e.error_text
		FROM g CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT %[2]s LIMIT %[1]d + 1) x) c
			CROSS JOIN LATERAL (SELECT %[3]s AS v, t.commit_time, t.reason %[2]s ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT 1) f
			LEFT JOIN LATERAL (SELECT x.reason, left(x.error, 1000) AS error, left(x.error_text, 1000) AS error_text
				FROM (SELECT t.reason, t.error, t.error_text %[2]s ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT %[5]d) x WHERE x.error <> '' LIMIT 1) e ON true
		LIMIT %[4]d`, most, of, prefixExpression(destinationExpression), maxGroups+1, lookedForError)
	}}
}()

// oldestGroups counts the deferred rows by a value that no index has: among the oldest maxLooked
// rows. An index would have to be written to whenever an event is deferred. Each group has the
// error of the first of its rows that was refused; NULL stands for rows without the value.
func oldestGroups(value string) grouping {
	return grouping{count: func(int) string {
		return fmt.Sprintf(`WITH x AS (SELECT %[1]s AS v, t.n, t.commit_time, t.error <> '' AS refused FROM cdc_relay.retry t WHERE t.slot = $1
				ORDER BY t.system_id, t.incarnation, t.commit_lsn, t.idx LIMIT %[2]d + 1),
			g AS (SELECT v, count(*) AS c, min(commit_time) AS oldest, min(n) FILTER (WHERE refused) AS first FROM x GROUP BY v ORDER BY c DESC LIMIT %[3]d)
		SELECT g.v, least(g.c, %[2]d), (SELECT count(*) > %[2]d FROM x), g.oldest, coalesce(e.reason, ''), coalesce(left(e.error, 1000), ''), left(e.error_text, 1000)
		FROM g LEFT JOIN cdc_relay.retry e ON e.n = g.first AND e.slot = $1`, value, maxLooked, maxGroups+1)
	}}
}
