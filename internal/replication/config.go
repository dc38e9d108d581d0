// Package replication is the PostgreSQL side of the relay: slot and publication from their creation to their end, who
// leads, the session that reads the WAL, the reports that let the slot move, and the checks that it is still our slot.
package replication

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Config says which slot of which database is read, and where its events go.
type Config struct {
	URL      string                 // libpq URL or key=value
	Password func() (string, error) // asked at every connect; "" keeps what the URL, PGPASSWORD or the passfile say

	Slot        string
	Publication string
	Tables      []decode.Table // OIDs are filled in from the catalogue; none: messages alone
	Messages    decode.Messages
	Columns     []string // extra columns, as in decode.Config

	Create     bool // create what is missing on the first start
	NoBackfill bool // create the slot although the table has rows: they are not sent. Of `init --no-backfill`

	WALSenderTimeout time.Duration // of our walsender, sent at connect; bounds the detection of a silent cut
	Grace            time.Duration // for a clean stop: reading gets half of it

	// NewLine makes a line whose first watermark is the term's Start. Called once per epoch, while we hold the slot. It may
	// ask the database; an error that is no *outbox.Stop has the slot let go and seized again.
	NewLine func(ctx context.Context, t Term) (Line, error)
	Hooks   Hooks
	Log     *zap.Logger

	home *home // of a Stream
}

// Term is the time of one leader: of one epoch.
type Term struct {
	Start       pglogrepl.LSN // the slot's confirmed_flush_lsn
	Epoch       int64
	Incarnation int64 // of the slot
	SystemID    string
	Pool        *pgxpool.Pool // the stream's; it outlives the line
}

// Line is where the reader puts what it reads, and whose watermark the reporter reports; relay.Line stands behind it.
// Begin to Disconnected are called by the reader's goroutine only.
type Line interface {
	Run(ctx context.Context) error
	Begin(commit pglogrepl.LSN, xid uint32) error
	Event(ctx context.Context, ev *outbox.Event) error
	Commit(end pglogrepl.LSN)
	Keepalive(pos pglogrepl.LSN)
	Wake(all bool) // before the reader waits, and when it ends
	Disconnected()

	Watermark() outbox.Watermark
	Moved() <-chan struct{}
	Unsettled() int
	Stopping() // reading has ended for good; WaitSettled comes next
	WaitSettled(ctx context.Context) error
}

// Hooks tell the outside what happens; each may be nil.
type Hooks struct {
	Skipped   func(reason string) // a frame of the stream that is not an event of ours
	Reconnect func()              // a session after the first one was started
	Beat      func()              // the reporter's loop is alive

	// Each of these loops tells that it begins a round of bounded questions, and when it waits for the next that it is at rest.
	Monitor, Ceiling func(atWork bool)
}

// tell tells one of those.
func tell(hook func(atWork bool), atWork bool) {
	if hook != nil {
		hook(atWork)
	}
}

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// applicationName is how a relay of this slot is told from any other holder of it. The server keeps no more of it than
// nameLimit bytes, and what is compared with its views must be what it kept.
func (c *Config) applicationName() string {
	name := applicationPrefix + c.Slot
	return name[:min(len(name), nameLimit)]
}

const (
	applicationPrefix = "cdc-relay/"
	nameLimit         = 63 // NAMEDATALEN - 1
)

func (c *Config) validate() error {
	if !slotName.MatchString(c.Slot) {
		return &outbox.Stop{
			Code: outbox.ExitUsage, Reason: "config",
			What: fmt.Sprintf("slot name %q: want 1 to 63 of a-z, 0-9 and _", c.Slot),
		}
	}
	if len(c.Tables) == 0 && c.Messages.Prefix == "" {
		return &outbox.Stop{
			Code: outbox.ExitUsage, Reason: "config",
			What: "source.tables names no table and source.message_prefix is not set: there is nothing to relay",
		}
	}
	return nil
}

// tableNames is the configured tables as SQL, comma separated.
func (c *Config) tableNames() string { return strings.Join(c.quotedTables(), ", ") }

func (c *Config) quotedTables() []string {
	names := make([]string, len(c.Tables))
	for i, t := range c.Tables {
		names[i] = quoteTable(t)
	}
	return names
}

// relayed says in log lines what is relayed.
func (c *Config) relayed() []zap.Field {
	fields := []zap.Field{zap.String("tables", namedIn(c.Tables))}
	if c.Messages.Prefix != "" {
		fields = append(fields, zap.String("message_prefix", c.Messages.Prefix))
	}
	return fields
}

func quoteTable(t decode.Table) string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

func quoteName(name string) string { return pgx.Identifier{name}.Sanitize() }

func quoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// namedIn says in words which tables, for log lines.
func namedIn(tables []decode.Table) string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.Schema + "." + t.Name
	}
	return strings.Join(names, ", ")
}

func bytesText(n uint64) string {
	const unit = 1024
	for _, name := range []string{"B", "KiB", "MiB"} {
		if n < unit*10 {
			return fmt.Sprintf("%d %s", n, name)
		}
		n /= unit
	}
	return fmt.Sprintf("%d GiB", n)
}
