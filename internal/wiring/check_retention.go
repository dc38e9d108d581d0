// The check of what retention needs.

package wiring

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/retention"
)

// checkRetention has no finding without retention, nor while the schema is not there: the check of
// PostgreSQL says so.
func checkRetention(ctx context.Context, c *config.Config, rc source.Config) []check.Finding {
	const name = "retention"
	tables := Retained(c)
	if len(tables) == 0 {
		return nil
	}
	pool, err := source.ConnectPool(&rc)
	if err != nil {
		return nil
	}
	defer source.ClosePool(pool)
	var there bool
	if err := pool.QueryRow(ctx, `SELECT to_regclass('cdc_relay.gap') IS NOT NULL`).Scan(&there); err != nil || !there {
		return nil
	}
	problems, err := retention.Examine(ctx, pool, c.Source.Slot, c.Source.Publication, tables, c.Retention.Keep)
	if err != nil {
		return []check.Finding{{Name: name, Level: check.LevelWarn, Detail: "cannot be checked: " + source.OneLine(err).Error()}}
	}
	var list []check.Finding
	ok := true
	for _, p := range problems {
		f := check.Finding{Name: name, Level: check.LevelFail, Detail: p.What, Fix: p.Fix}
		if p.Warn {
			f.Level = check.LevelWarn
		} else {
			ok = false
		}
		list = append(list, f)
	}
	if ok {
		age := "of any age"
		if c.Retention.Keep > 0 {
			age = fmt.Sprintf("older than %s", c.Retention.Keep)
		}
		list = append([]check.Finding{{Name: name, Level: check.LevelOK, Detail: "delivered rows " + age + " are deleted"}}, list...)
	}
	return list
}
