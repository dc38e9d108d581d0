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

// CheckAge returns a Stop with exit code event.ExitUsage if retention needs the age of rows and it
// is not known. When that cannot be asked, it only says so: delivery does not depend on it.
func CheckAge(ctx context.Context, c *config.Config, pool *pgxpool.Pool, log *zap.Logger) error {
	tables := Retained(c)
	if len(tables) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	err := retention.CheckTime(ctx, pool, tables, c.Retention.Keep)
	var stop *event.Stop
	if errors.As(err, &stop) {
		return stop
	}
	if err != nil {
		log.Warn("cannot tell whether the age of rows is known, which retention needs", zap.Error(err))
	}
	return nil
}

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
	if ok {
		age := "of any age"
		if c.Retention.Keep > 0 {
			age = "older than " + setting.ShowDuration(c.Retention.Keep)
		}
		list = append([]check.Finding{{Name: name, Level: check.LevelOK, Detail: "delivered rows " + age + " are deleted"}}, list...)
	}
	return list
}
