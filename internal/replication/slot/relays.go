// The relays that stand by, as PostgreSQL sees them. A relay that waits for the slot asks four
// times a second whether it is free, and names itself in that statement. pg_stat_activity has the
// last statement of each session, so nothing is stored for it, and a relay that ends takes its name
// along.

package slot

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// relayAt is between the name and the address of a relay. A host's name has no space.
const relayAt = " at "

// RelayName is how this process names itself, with the address by which others reach it: in
// cdc_relay.slots when it leads, and in its statements while it stands by.
func RelayName(c *source.Config) string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	name := fmt.Sprintf("%s pid %d", host, os.Getpid())
	if c.Advertise != "" {
		name += relayAt + c.Advertise
	}
	return name
}

// SplitRelay splits what RelayName made. Whoever may write to cdc_relay.slots, or log in as the
// relay's role, may have written any address.
func SplitRelay(text string) (name, address string) {
	name, address, _ = strings.Cut(text, relayAt)
	return name, address
}

// The comment that a relay that stands by puts in front of its statements, around its name.
const (
	standsBy    = "/* cdc-relay stands by: "
	standsByEnd = " */ "
)

// standbyRelaysSQL reads the names in such comments. A statement of more than 5 s ago does not
// count: its relay is frozen, or has vanished with its host. The answer is NULL where such a
// comment need not be there, or not whole: the relays then have another role than this session,
// perhaps.
const standbyRelaysSQL = `SELECT CASE WHEN current_setting('track_activities')::bool AND session_user = current_user
		AND pg_size_bytes(current_setting('track_activity_query_size')) >= 512 THEN ARRAY(
	SELECT DISTINCT left(split_part(substr(a.query, length('` + standsBy + `') + 1), '` + standsByEnd + `', 1), 400) FROM pg_stat_get_activity(NULL) a
	WHERE a.application_name = $1 AND pg_get_userbyid(a.usesysid) = session_user AND a.query LIKE '` + standsBy + `%` + standsByEnd + `%'
		AND a.state_change > now() - interval '5 s' ORDER BY 1 LIMIT 100) END`

// named runs queries that say which relay asks.
type named struct {
	source.Querier
	comment string
}

// AsStandby returns q for a relay that stands by.
func AsStandby(q source.Querier, c *source.Config) source.Querier {
	return named{q, standsBy + commented(RelayName(c)) + standsByEnd}
}

// commented returns a name that does not end the comment that it is in.
func commented(name string) string { return strings.ToValidUTF8(strings.ReplaceAll(name, "*", ""), "") }

func (n named) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return n.Querier.QueryRow(ctx, n.comment+sql, args...)
}

func (n named) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return n.Querier.Query(ctx, n.comment+sql, args...)
}

// ReadStandbyRelays reads the names of the relays that stand by for the slot, as RelayName made
// them, without this one, which may have done so a moment ago. It trusts only sessions of its own
// role. nil means that it is not known: the server keeps no statements (track_activities is off),
// or cuts them short, or the session has taken another role.
func ReadStandbyRelays(ctx context.Context, q source.Querier, c *source.Config) (names []string, err error) {
	err = source.Ask(ctx, q, "read which relays stand by", standbyRelaysSQL, c.ApplicationName()).Scan(&names)
	own := commented(RelayName(c))
	return slices.DeleteFunc(names, func(name string) bool { return name == own }), err
}

// askStandbyRelays reads which relays stand by, if this one leads. One that was there the time
// before stays: its session may just have run another statement.
func (v *surveyor) askStandbyRelays(ctx context.Context) error {
	var now, shown []string
	if v.status.Snapshot().Phase == Streaming {
		var err error
		if now, err = ReadStandbyRelays(ctx, v.pool, v.c); err != nil {
			return err
		}
		if now != nil {
			shown = append(append([]string{}, now...), v.standbys...)
			slices.Sort(shown)
			shown = slices.Compact(shown)
		}
	}
	v.standbys = now
	v.status.changeSnapshot(func(snap *Snapshot) {
		if snap.Phase == Streaming { // else it has lost the slot meanwhile
			snap.Standbys = shown
		}
	})
	return nil
}
