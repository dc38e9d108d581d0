// The check of what retention needs.

package wiring

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/retention"
)

// CheckRetained returns a Stop with exit code event.ExitUsage if a table lacks what retention goes
// by. When that cannot be asked, it only says so: delivery does not depend on it.
func CheckRetained(ctx context.Context, c *config.Config, pool *pgxpool.Pool, log *zap.Logger) error {
	if !c.Retention.IsSet() {
		return nil
	}
	tables := Retained(c)
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	err := retention.CheckTables(ctx, pool, tables)
	var stop *event.Stop
	if errors.As(err, &stop) {
		return stop
	}
	if err != nil {
		log.Warn("cannot tell whether the tables have what retention needs", zap.Error(err))
	}
	return nil
}

// checkRetention has no finding while the schema is not there: the check of PostgreSQL says so.
// Without retention it is about the column of the rows' transaction alone.
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
	if err := pool.QueryRow(ctx, `SELECT to_regclass('cdc_relay.sent') IS NOT NULL`).Scan(&there); err != nil || !there {
		return nil
	}
	var problems []retention.Problem
	if c.Retention.IsSet() {
		problems, err = retention.Examine(ctx, pool, c.Source.Slot, c.Source.Publication, tables)
	} else {
		problems, err = retention.ExamineColumns(ctx, pool, c.Source.Publication, tables)
	}
	switch {
	case source.SQLState(err) == "42501": // on the relay's own tables: Examine tells of the outbox
		return []check.Finding{{
			Name: name, Level: check.LevelFail, Detail: "cannot be checked: " + source.OneLine(err).Error(),
			Fix: fmt.Sprintf("cdc-relay init --url <of a role that may grant it> --role %s", pool.Config().ConnConfig.User),
		}}
	case err != nil:
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
	if ok && c.Retention.IsSet() {
		after := "at once"
		if c.Retention.Keep > 0 {
			after = setting.ShowDuration(c.Retention.Keep) + " after that"
		}
		list = append([]check.Finding{{Name: name, Level: check.LevelOK, Detail: "rows that were delivered are deleted, " + after}}, list...)
	}
	return list
}
