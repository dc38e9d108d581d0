// The command init: it creates what the relay needs in the database, and the files of tokens.

package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/repair"
	"github.com/cdc-relay/cdc-relay/internal/replication/setup"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// newInit makes the command init.
func newInit(g *command.Options) *cobra.Command {
	var opt setup.InitOptions
	var printOnly, noBackfill, addTransaction bool
	var backfill repair.RecoverOptions
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create what is missing: schema, publication, slot, rights, outbox table",
		Long: `Creates the schema cdc_relay, the publication and the slot where they are missing, and with
--outbox-table the outbox table. You can run it again at any time. With source.create: false the
publication and the slot must exist already, and stay as they are. A table that exists stays as it
is, too; one by which another role could run code as whoever inserts is refused.

A new slot sends only what is committed after it. If the outbox table already has rows, "init" and
"run" refuse to create the slot (exit 2). Then choose: "init --no-backfill" leaves these rows
unsent, "init --backfill" sends all of them, or those that an SQL expression selects.

A file that admin.tokens names is created with a random token if it is missing. Only the user who
runs init can read it: run init as the relay's user, or give the file to that user.`,
		Example: `  cdc-relay init --outbox-table
  cdc-relay init --no-backfill
  cdc-relay init --backfill="created_at > '2026-01-31'" --order-by created_at
  cdc-relay init --url postgres://owner@db/shop --role relay
  cdc-relay init --add-transaction-column | psql -v ON_ERROR_STOP=1 postgres://owner@db/shop
  cdc-relay init --print --role relay | psql shop`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkURL(opt.URL); err != nil {
				return err
			}
			c, rc, log, err := g.Source()
			if err != nil {
				return err
			}
			if noBackfill && (opt.NoSlot || printOnly) {
				return command.UsageError("--no-backfill is for the slot that init creates: leave out --no-slot and --print")
			}
			rc.NoBackfill = noBackfill
			if err := checkBackfill(cmd, rc, noBackfill, opt.NoSlot || printOnly); err != nil {
				return err
			}
			if addTransaction {
				return setup.PrintTransactionColumn(cmd.OutOrStdout(), rc)
			}
			if printOnly {
				return setup.PrintInit(cmd.OutOrStdout(), rc, opt)
			}
			log.Debug("init", zap.String("slot", c.Source.Slot))
			if backfill.Where != "" {
				if err := repair.CheckWhere(cmd.Context(), rc, backfill.Where); err != nil {
					return err
				}
				opt.NoSlot = true // the backfill makes it, in the same snapshot as its copy
			}
			opt.Check = func(ctx context.Context, pool *pgxpool.Pool) error { return wiring.CheckRetained(ctx, c, pool, log) }
			// when it is interrupted, it takes back a slot that is still being created
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			if err := setup.Init(ctx, rc, opt); err != nil {
				if ctx.Err() != nil && cmd.Context().Err() == nil {
					return errors.New("interrupted: run it again")
				}
				return err
			}
			stop()
			if backfill.Where != "" {
				report, err := runRecovery(cmd, c, rc, log, backfill, repair.Backfill)
				if err != nil {
					return err
				}
				if err := printRecovery(cmd.OutOrStdout(), report); err != nil {
					return err
				}
			}
			return createTokenFiles(c, log)
		},
	}
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the SQL and change nothing")
	cmd.Flags().BoolVar(&opt.OutboxTable, "outbox-table", false, "also create the outbox table")
	cmd.Flags().BoolVar(&addTransaction, "add-transaction-column", false, "print the SQL that adds the column outbox.transaction to tables\nthat exist, with its index and its trigger, and change nothing")
	cmd.Flags().BoolVar(&noBackfill, "no-backfill", false, "leave rows that are already in the table unsent")
	cmd.Flags().StringVar(&backfill.Where, "backfill", "", "send the rows that are already in the table, or those that\nthis `SQL` expression selects, through the retry table")
	cmd.Flags().Lookup("backfill").NoOptDefVal = allRows
	orderFlags(cmd, &backfill)
	cmd.Flags().StringVar(&opt.URL, "url", "", "`URL` of a role that may create what is missing (default source.url)")
	cmd.Flags().BoolVar(&opt.NoSlot, "no-slot", false, "do not create the slot: the first start or takeover does")
	cmd.Flags().StringVar(&opt.Role, "role", "", "grant this `ROLE`, the relay's, the rights that it needs")
	return cmd
}

// checkURL checks the value of --url; "" is allowed.
func checkURL(url string) error {
	if url == "" {
		return nil
	}
	if err := config.CheckPostgres(url); err != nil {
		return command.UsageError("--url " + err.Error())
	}
	return nil
}

// allRows is the expression of a --backfill without one.
const allRows = "true"

// checkBackfill refuses flags of a backfill that exclude each other.
func checkBackfill(cmd *cobra.Command, rc source.Config, none, noSlot bool) error {
	given := cmd.Flags().Changed("backfill")
	switch {
	case !given && (cmd.Flags().Changed("order-by") || cmd.Flags().Changed("order-by-begin") || cmd.Flags().Changed("unordered")):
		return command.UsageError("--order-by, --order-by-begin and --unordered are for --backfill")
	case !given:
		return nil
	case cmd.Flags().Lookup("backfill").Value.String() == "":
		return command.UsageError("--backfill= wants an SQL expression; `--backfill` alone takes all rows")
	case none:
		return command.UsageError("--backfill and --no-backfill exclude each other")
	case noSlot:
		return command.UsageError("--backfill is for the slot that init creates: leave out --no-slot and --print")
	case !rc.Create:
		return command.UsageError("--backfill is for the slot that init creates, and source.create is false")
	}
	return nil
}

// tokenBytes is how many random bytes a token has, so that nobody can guess it. Its file has them
// in hexadecimal.
const tokenBytes = 32

// createTokenFiles creates the files of admin.tokens that do not exist. It leaves a file that
// exists alone, whatever is in it: another machine or a secret store may have put it there. A file
// whose directory is missing or read-only is only warned of: whoever starts the relay may bring it,
// as systemd does a credential, and Kubernetes a Secret.
func createTokenFiles(c *config.Config, log *zap.Logger) error {
	var failed error
	for _, token := range c.Admin.Tokens {
		path, ok := token.Value.File()
		if !ok {
			continue
		}
		created, err := createTokenFile(path)
		if created {
			log.Info("created the file of a token", zap.String("token", token.Name), zap.String("path", path))
		}
		switch {
		case err == nil:
		case isElsewhere(err):
			log.Warn("did not create the file of a token", zap.Error(tokenFileError(token.Name, path, err)))
		default:
			failed = errors.Join(failed, tokenFileError(token.Name, path, err))
		}
	}
	return failed
}

// createTokenFile creates a file with a random token. The file appears with all of its content: a
// file with half a token would be easier to guess, and the next init would leave it.
func createTokenFile(path string) (created bool, err error) {
	if _, err := os.Lstat(path); err == nil { // perhaps in a directory where nobody can write
		return false, nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".token-*") // mode 0600
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	secret := make([]byte, tokenBytes)
	_, _ = rand.Read(secret) // never fails
	_, err = f.WriteString(hex.EncodeToString(secret) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return false, err
	}
	err = os.Link(f.Name(), path) // unlike a rename, it replaces no file
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// isElsewhere reports whether a file cannot be created here because its directory is missing or
// read-only.
func isElsewhere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EROFS)
}

// tokenFileError is the error for the file of a token that cannot be created, with the fix.
func tokenFileError(name, path string, err error) error {
	dir := filepath.Dir(path)
	stop := &event.Stop{
		Code: event.ExitFailure, Reason: "token_file", What: fmt.Sprintf("create the file of admin token %q", name), Err: err,
		Fix: "run init as a user who may write to " + dir + ", or create the file there (openssl rand -hex 32)",
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		stop.Fix = fmt.Sprintf("create its directory for the relay's user (install -d -m 700 -o USER %s) and run init again", dir)
	}
	return stop
}
