// The database connection of an operator's command, and its errors.

package operate

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// adminClient is the database connection of an operator's command. It works whether or not a relay
// runs.
type adminClient struct {
	*dlq.Admin
	cfg  *config.Config
	pool *pgxpool.Pool
}

// commandTimeout bounds a command, on top of --wait: a server that went silent must not block it.
const commandTimeout = 2 * time.Minute

// withAdminClient connects and calls do, which may take wait longer than usual.
func withAdminClient(ctx context.Context, g *command.Options, wait time.Duration, do func(ctx context.Context, d *adminClient) error) error {
	c, rc, _, err := g.Source()
	if err != nil {
		return err
	}
	rc.Log = zap.NewNop()
	ctx, cancel := context.WithTimeout(ctx, commandTimeout+wait)
	defer cancel()
	connecting, connected := context.WithTimeout(ctx, command.DatabaseTimeout)
	defer connected()
	pool, err := source.Connect(connecting, rc)
	if err != nil {
		return err
	}
	defer pool.Close()
	// The commands often run as the relay, and nobody has to have started it before.
	if err := schema.Verify(connecting, pool, schema.Trust{Replication: true}); err != nil {
		return err
	}
	d := &adminClient{Admin: dlq.New(pool, c.Source.Slot), cfg: c, pool: pool}
	if err := d.Check(ctx); err != nil {
		return withExitCode(err)
	}
	return withExitCode(do(ctx, d))
}

// withExitCode gives errors their exit codes and fixes.
func withExitCode(err error) error {
	var bad *dlq.BadInput
	var slot *dlq.NoSlot
	var server *pgconn.PgError
	switch {
	case errors.As(err, &bad):
		return command.UsageError("--" + strings.ReplaceAll(bad.Name, "_", "-") + " " + bad.What)
	case errors.Is(err, dlq.ErrNoSchema):
		return &event.Stop{
			Code: event.ExitFailure, Reason: "schema", What: "the tables of schema cdc_relay are missing in this database, or of an older version",
			Fix: "run `cdc-relay init`, or start this version of the relay once; source.url may name another database",
		}
	case errors.As(err, &slot):
		return &event.Stop{Code: event.ExitFailure, Reason: "no_slot", What: slot.Error(), Fix: "correct source.slot, or run `cdc-relay init`"}
	case errors.As(err, &server) && server.Code == "42501":
		return &event.Stop{
			Code: event.ExitFailure, Reason: "rights", What: "permission denied for the role of source.url", Err: err,
			Fix: "use the relay's role, or GRANT what docs/dead-letters.md#a-role-for-operators lists",
		}
	}
	return err
}
