// Groups count rows by what they have in common: the reason, the destination, the type.

package dlq

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Group is the rows with a value.
type Group struct {
	Value  *string `json:"value"`   // its first 200 bytes; null: NULL
	Count  int64   `json:"count"`   // with OrMore: there may be more
	OrMore bool    `json:"or_more"` // they were not counted to the end
	// when it died, or the commit of the first deferred one; null: not known
	Oldest *time.Time `json:"oldest"`

	Reason string `json:"reason,omitempty"` // of the first deferred one: of its last refusal
	Error  string `json:"error,omitempty"`
}

// Groups are the groups of a table, the largest first.
type Groups struct {
	By    string  `json:"group"`
	Items []Group `json:"items"`
	More  bool    `json:"more"` // there are others
}

// What counting may cost, whatever the tables have.
const (
	maxGroups  = 200
	maxCounted = 10_000 // rows of a group
)

// GroupNames are what rows of a table can be counted by.
func GroupNames(of *Table) []string {
	if of == Deferred {
		return []string{"destination"}
	}
	return []string{"reason", "destination", "type"}
}

// CheckGroup refuses what rows cannot be counted by, and states without groups.
func CheckGroup(of *Table, by, state string) error {
	if names := GroupNames(of); !slices.Contains(names, by) {
		return &BadInput{"group", fmt.Sprintf("is %q, want one of %s", by, strings.Join(names, ", "))}
	}
	if state == Replaying || state == Purged {
		return &BadInput{"state", fmt.Sprintf("is %q, want open, replayed or discarded with --group", state)}
	}
	return nil
}

// Groups counts the rows of a table: dead letters of a state, "" for open ones. An index leads from
// one value to the next, and each group is counted to a limit.
func (a *Admin) Groups(ctx context.Context, of *Table, by, state string) (*Groups, error) {
	if err := CheckGroup(of, by, state); err != nil {
		return nil, err
	}
	sql, args := deferredGroupsSQL, []any{a.slot}
	if of == DeadLetters {
		args = append(args, cmp.Or(state, Open))
		switch by {
		case "reason":
			sql = reasonGroupsSQL
		case "type":
			sql = valueGroupsSQL(prefixExpression("t.type"))
		default:
			sql = valueGroupsSQL(prefixExpression(destinationExpression))
		}
	}
	list, err := all(ctx, a, "count the rows", sql, args, func(row pgx.CollectableRow) (g Group, err error) {
		var value []byte
		err = row.Scan(&value, &g.Count, &g.OrMore, &g.Oldest, &g.Reason, &g.Error)
		g.Value, g.Oldest = text(value), utc(g.Oldest)
		g.Error = strings.ToValidUTF8(g.Error, "")
		return g, err
	})
	if err != nil {
		return nil, err
	}
	out := &Groups{By: by, Items: []Group{}, More: len(list) > maxGroups}
	for _, g := range list[:min(len(list), maxGroups)] {
		same := slices.IndexFunc(out.Items, func(o Group) bool {
			return (o.Value == nil) == (g.Value == nil) && (g.Value == nil || *o.Value == *g.Value)
		})
		switch {
		case g.Count == 0 && !g.OrMore:
		case same < 0:
			out.Items = append(out.Items, g)
		default: // of another class, or of another partition of its topic
			o := &out.Items[same]
			o.Count, o.OrMore = o.Count+g.Count, o.OrMore || g.OrMore
			if o.Oldest == nil || g.Oldest != nil && g.Oldest.Before(*o.Oldest) {
				o.Oldest, o.Reason, o.Error = g.Oldest, g.Reason, g.Error
			}
		}
	}
	slices.SortStableFunc(out.Items, func(a, b Group) int { return cmp.Compare(b.Count, a.Count) })
	return out, nil
}

// reasonGroupsSQL counts the dead letters of state $2 by class and reason.
var reasonGroupsSQL = ByState + fmt.Sprintf(` SELECT convert_to(g.reason, 'UTF8'), least(c.n, %[1]d), c.n > %[1]d, o.died_at, '', ''
	FROM g CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM cdc_relay.dead_letter t
			WHERE t.slot = $1 AND t.state = g.state AND t.class = g.class AND t.reason = g.reason LIMIT %[1]d + 1) x) c
		CROSS JOIN LATERAL (SELECT t.died_at FROM cdc_relay.dead_letter t
			WHERE t.slot = $1 AND t.state = g.state AND t.class = g.class AND t.reason = g.reason ORDER BY t.died_at, t.n LIMIT 1) o
	WHERE g.state = $2 LIMIT %[2]d`, maxCounted, maxGroups+1)

// valueGroupsSQL counts the dead letters of state $2 by a value of which an index has the
// beginning. The index has no states: of each value so many rows are looked at, the oldest first.
func valueGroupsSQL(value string) string {
	counted := func(condition string) string {
		return fmt.Sprintf(`(SELECT count(*) FILTER (WHERE x.state = $2) AS n, count(*) > %[1]d AS more, min(x.died_at) FILTER (WHERE x.state = $2) AS oldest
			FROM (SELECT t.state, t.died_at FROM cdc_relay.dead_letter t WHERE t.slot = $1 AND %[2]s %[3]s ORDER BY t.died_at, t.n LIMIT %[1]d + 1) x)`, maxCounted, value, condition)
	}
	next := "(SELECT " + value + " AS v FROM cdc_relay.dead_letter t WHERE t.slot = $1 AND " + value + " IS NOT NULL"
	last := " ORDER BY " + value + " LIMIT 1)"
	return fmt.Sprintf(`WITH RECURSIVE g AS (%s%s UNION ALL SELECT n.v FROM g CROSS JOIN LATERAL %s AND %s > g.v%s n)
		SELECT g.v, least(c.n, %d), c.more, c.oldest, '', '' FROM g CROSS JOIN LATERAL %s c
		UNION ALL SELECT NULL, c.n, c.more, c.oldest, '', '' FROM %s c LIMIT %d`,
		next, last, next, value, last, maxCounted, counted("= g.v"), counted("IS NULL"), maxGroups+1)
}

// deferredGroupsSQL counts the deferred rows by destination, each with its first one.
var deferredGroupsSQL = func() string {
	next := func(after string) string {
		return "(SELECT t.exchange_or_topic, t.dest FROM cdc_relay.retry t WHERE t.slot = $1" + after + " ORDER BY t.exchange_or_topic, t.dest LIMIT 1)"
	}
	of := "FROM cdc_relay.retry t WHERE t.slot = $1 AND t.exchange_or_topic = g.exchange_or_topic AND t.dest = g.dest"
	return fmt.Sprintf(`WITH RECURSIVE g AS (%[1]s UNION ALL SELECT n.* FROM g CROSS JOIN LATERAL %[2]s n)
		SELECT f.v, least(c.n, %[3]d), c.n > %[3]d, f.commit_time, f.reason, f.error
		FROM g CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT %[4]s LIMIT %[3]d + 1) x) c
			CROSS JOIN LATERAL (SELECT %[5]s AS v, t.commit_time, t.reason, left(t.error, 1000) AS error %[4]s ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT 1) f
		LIMIT %[6]d`,
		next(""), next(" AND (t.exchange_or_topic, t.dest) > (g.exchange_or_topic, g.dest)"), maxCounted, of, prefixExpression(destinationExpression), maxGroups+1)
}()
