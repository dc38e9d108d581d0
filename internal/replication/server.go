package replication

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

const oldestServer = 140000 // logical messages in the stream and pg_stat_replication_slots came with 14

// checkServer asks for what no slot can do without.
func checkServer(ctx context.Context, q querier) error {
	var version int
	var walLevel, versionText string
	err := q.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('wal_level')`).
		Scan(&version, &versionText, &walLevel)
	if err != nil {
		return fmt.Errorf("read server settings: %w", err)
	}
	if version < oldestServer {
		return &outbox.Stop{
			Code: outbox.ExitFailure, Reason: "server_version",
			What: "PostgreSQL " + versionText + " is too old", Mend: "14 or newer is needed",
		}
	}
	if walLevel != "logical" {
		return &outbox.Stop{
			Code: outbox.ExitFailure, Reason: "wal_level",
			What: fmt.Sprintf("wal_level is %s, not logical", walLevel),
			Mend: "ALTER SYSTEM SET wal_level = logical, then restart the server",
		}
	}
	return nil
}

// fatalConnect turns what a server may answer to a connection attempt into a Stop, or nil when it is worth waiting:
// a server that is not there, starting up, or full for the moment. everConnected: a relay that worked before keeps trying
// through wrong passwords and full walsender slots, because secrets rotate and others leave.
func fatalConnect(c *Config, err error, everConnected bool, since time.Time) error {
	if everConnected {
		return nil
	}
	if stop, ok := errors.AsType[*outbox.Stop](err); ok {
		return stop
	}
	var atConnect *pgconn.ConnectError
	switch code := pgCode(err); {
	case code == "28P01" || code == "28000":
		if time.Since(since) < passwordPatience {
			return nil
		}
		return &outbox.Stop{
			Code: outbox.ExitFailure, Reason: "login", Err: err,
			What: refusedLogin(since),
			Mend: "correct source.url, its certificate (sslcert) and source.password, or pg_hba.conf (it needs a line for the role and the database itself, and for replication=database connections of the same database)",
		}
	case code == "42501" && errors.As(err, &atConnect):
		return &outbox.Stop{
			Code: outbox.ExitFailure, Reason: "rights", Err: err,
			What: "this role may not replicate, or not use this database",
			Mend: fmt.Sprintf("ALTER ROLE %[1]s REPLICATION; GRANT CONNECT ON DATABASE %[2]s TO %[1]s", quoteName(atConnect.Config.User), quoteName(atConnect.Config.Database)),
		}
	case code == "42501":
		return &outbox.Stop{
			Code: outbox.ExitFailure, Reason: "rights", Err: err,
			What: "this role misses a right", Mend: initHint(c.role()),
		}
	case code == "53300":
		return &outbox.Stop{
			Code: outbox.ExitFailure, Reason: "no_sender", Err: err,
			What: "the server has no free walsender or connection",
			Mend: "raise max_wal_senders (or max_connections) and restart the server",
		}
	case code == "3D000":
		return &outbox.Stop{
			Code: outbox.ExitFailure, Reason: "database", Err: err,
			What: "the database does not exist", Mend: "correct source.url",
		}
	}
	return nil
}

// refusedLogin says for how long; commands ask once.
func refusedLogin(since time.Time) string {
	if since.IsZero() {
		return "PostgreSQL refuses the login"
	}
	return fmt.Sprintf("PostgreSQL refused the login for %s", passwordPatience)
}

// role is who the relay logs in as.
func (c *Config) role() string {
	cfg, err := parseURL(c)
	if err != nil {
		return "ROLE" // cannot be: it has connected
	}
	return cfg.User
}

// passwordPatience is how long a relay that never connected tries a login that is refused.
const passwordPatience = 60 * time.Second

func badURL(err error) error {
	return &outbox.Stop{
		Code: outbox.ExitUsage, Reason: "config", What: "source.url can not be read", Err: err, // pgconn removes the password from its text
	}
}

// leaderName is who we are in cdc_relay.slots, for people.
func leaderName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return fmt.Sprintf("%s pid %d", host, os.Getpid())
}
