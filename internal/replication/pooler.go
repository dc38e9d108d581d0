// What tells that a connection pooler is between the relay and PostgreSQL.

package replication

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

const mendPooler = "give source.url the address of PostgreSQL itself, past the pooler; the application may go on using it"

// poolerRefused is what to do when a pooler refuses what only PostgreSQL itself takes.
func poolerRefused(err error) string {
	switch code := pgCode(err); {
	case code == "08P01" && strings.Contains(err.Error(), "startup parameter"), // PgBouncer knows few of them
		code == "42P05", code == "26000", // prepared statements that are somebody else's, or somewhere else
		code == "42601" && strings.Contains(err.Error(), "IDENTIFY_SYSTEM"): // its server is no walsender
		return mendPooler
	}
	return ""
}

// keptBack are the settings that the relay has sent with the connection, and that are not in force.
func keptBack(ctx context.Context, q querier, c *Config) ([]string, error) {
	sent := settings(c.applicationName())
	rows, err := q.Query(ctx, `SELECT n, coalesce(current_setting(n, true), '') FROM unnest($1::text[]) n`, slices.Sorted(maps.Keys(sent)))
	if err != nil {
		return nil, err
	}
	var name, value string
	var lost []string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		if value != sent[name] {
			lost = append(lost, fmt.Sprintf("%s is %q", name, value))
		}
		return nil
	})
	return lost, err
}
