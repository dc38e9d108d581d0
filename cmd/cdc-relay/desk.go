package main

import (
	"context"
	"errors"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/replication"
)

// desk is a connection of an operator's command: it talks to the database alone, a relay may run or not.
type desk struct {
	*dlq.Desk
	cfg  *config.Config
	pool *pgxpool.Pool
}

// deskBound is how long a command may take, beside what it was told to wait: a server that went silent must not keep it.
const deskBound = 2 * time.Minute

// atDesk connects and does something, which may take wait longer than usual.
func (g *global) atDesk(ctx context.Context, wait time.Duration, do func(ctx context.Context, d *desk) error) error {
	c, rc, _, err := sourceOnly(g)
	if err != nil {
		return err
	}
	rc.Log = zap.NewNop()
	ctx, cancel := context.WithTimeout(ctx, deskBound+wait)
	defer cancel()
	connecting, connected := context.WithTimeout(ctx, askDatabase)
	defer connected()
	pool, err := replication.Connect(connecting, rc)
	if err != nil {
		return err
	}
	defer pool.Close()
	d := &desk{Desk: dlq.New(pool, c.Source.Slot), cfg: c, pool: pool}
	if err := d.Check(ctx); err != nil {
		return explained(err)
	}
	return explained(do(ctx, d))
}

// explained gives the errors of a desk their exit codes and what to do.
func explained(err error) error {
	var bad *dlq.BadInput
	var slot *dlq.NoSlot
	var server *pgconn.PgError
	switch {
	case errors.As(err, &bad):
		return usageError("--" + bad.Error())
	case errors.Is(err, dlq.ErrNoSchema):
		return &outbox.Stop{
			Code: outbox.ExitFailure, Reason: "schema", What: "the tables of parked rows and dead letters are not in this database, or are of an older version",
			Mend: "run `cdc-relay init`, or start this version of the relay once; source.url may name another database",
		}
	case errors.As(err, &slot):
		return &outbox.Stop{Code: outbox.ExitFailure, Reason: "no_slot", What: slot.Error(), Mend: "correct source.slot, or run `cdc-relay init`"}
	case errors.As(err, &server) && server.Code == "42501":
		return &outbox.Stop{
			Code: outbox.ExitFailure, Reason: "rights", What: "the role of source.url may not do this", Err: err,
			Mend: "take the relay's role, or GRANT what docs/dead-letters.md lists for operators",
		}
	}
	return err
}

func usageError(what string) error {
	return &outbox.Stop{Code: outbox.ExitUsage, Reason: "usage", What: what}
}

// by is who asks, as the audit names them: the database role, and the user and machine of the command.
func (d *desk) by(ctx context.Context, why string) (dlq.By, error) {
	var role string
	if err := d.pool.QueryRow(ctx, `SELECT current_user`).Scan(&role); err != nil {
		return dlq.By{}, err
	}
	name := "uid " + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return dlq.By{Who: role + " (" + name + "@" + host + ")", Why: why}, nil
}

// outboxes are the tables in which an event's row can be.
func outboxes(c *config.Config) []dlq.Outbox {
	list := make([]dlq.Outbox, len(c.Source.Tables))
	for i, t := range c.Source.Tables {
		list[i] = dlq.Outbox{Schema: t.Schema, Table: t.Name, ID: t.Outbox.ID.Names}
	}
	return list
}

// parseWhen reads a time: RFC 3339, a date, a date and a time, or how long ago, also in days.
func parseWhen(s string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil
		}
	}
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01-02 15:04", time.DateTime} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("want a time in UTC such as 2026-11-20, 2026-11-20T15:04:05Z or \"2026-11-20 15:04\", or how long ago, such as 90m or 7d")
}
