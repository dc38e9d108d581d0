// Package source connects to the database that the relay reads. It has the configuration,
// connections, hosts and TLS, and the SQL helpers and operator hints that the other replication
// packages share.
package source

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// Config says which slot of which database is read, and which line its events go to.
type Config struct {
	URL string // libpq URL or key=value
	// Password is called at every connect; "" keeps what the URL, PGPASSWORD or the passfile say
	Password func(ctx context.Context) (string, error)

	Slot        string
	Publication string
	Tables      []decode.Table // OIDs are filled in from the catalogue; none: messages alone
	Messages    decode.Messages
	Columns     []string // extra columns, as in decode.Config
	Shapes      bool     // events have their table's shape
	Types       *Types   // what is known of the types in shapes; nil: nothing is remembered

	// Deletes means that rows of the tables are deleted once they are delivered, which needs rights
	// on the tables
	Deletes bool

	// Advertise is the address by which relays that stand by reach this one; "" means that there is
	// none.
	Advertise string

	Create bool // create what is missing on the first start
	// FailoverSlot is "on", "off" or "auto": whether slots are made as failover slots, see
	// MakesFailoverSlot. "" counts as "auto".
	FailoverSlot string
	// NoBackfill creates the slot although the tables have rows, which are not sent then:
	// `init --no-backfill`.
	NoBackfill bool

	// MaxEventBytes is the limit above which a row in the stream is read without its large values;
	// 0 means that there is no limit.
	MaxEventBytes int64
	// CreationLockPID is the pid of our session that has the lock on the creation of the slot; 0
	// means that no session of ours has it. slot.WithCreationLock writes it.
	CreationLockPID int32
	// WALSenderTimeout is the wal_sender_timeout of our walsender, sent at connect. A connection
	// that was cut silently is noticed within it.
	WALSenderTimeout time.Duration
	Grace            time.Duration // for a clean stop: reading gets half of it

	// NewLine makes a line whose first watermark is the term's Start. Called once per epoch, while
	// we hold the slot. It may query the database; after an error that is no *event.Stop the slot
	// is released and acquired again.
	NewLine func(ctx context.Context, t Term) (Line, error)
	Hooks   Hooks
	Log     *zap.Logger

	Guard guard.Limits // the disk guard

	Primary *Primary // the server that a Stream reads; nil for commands

	// RefusedPause is how long the shutdown watch pauses after it was refused a connection; 0 means
	// 5 s. Tests make it longer.
	RefusedPause time.Duration
	// ClientSilence is the time after which the server ends a copy whose process says nothing, and
	// any client that takes nothing of what it is sent; 0 means a minute. Tests make it shorter.
	ClientSilence time.Duration
}

// SilenceLimit is ClientSilence, or its default.
func (c *Config) SilenceLimit() time.Duration { return cmp.Or(c.ClientSilence, time.Minute) }

// Term is the time of one leader: of one epoch.
type Term struct {
	Start       pglogrepl.LSN // the slot's confirmed_flush_lsn
	Epoch       int64
	Incarnation int64 // of the slot
	SystemID    string
	Pool        *pgxpool.Pool // the stream's; it outlives the line
	Sent        *sent.Recorder
	Keys        *event.KeyHash // of ordering keys
}

// Line receives what the reader reads and has the watermark that the reporter reports; relay.Line
// implements it. Begin to Disconnected are called by the reader's goroutine only.
type Line interface {
	Run(ctx context.Context) error
	Begin(commit pglogrepl.LSN, xid uint32) error
	Event(ctx context.Context, ev *event.Event) error
	Commit(end pglogrepl.LSN)
	Keepalive(pos pglogrepl.LSN)
	Wake(all bool) // before the reader waits, and when it ends
	Disconnected()

	Watermark() event.Watermark
	Moved() <-chan struct{}
	Unsettled() int
	Stopping() // reading has ended for good; WaitSettled comes next
	WaitSettled(ctx context.Context) error
}

// Hooks are called when something happens; each may be nil.
type Hooks struct {
	Skipped func(reason string) // a frame of the stream that is not an event of ours
	// Stray is called for an event whose row does not have its transaction: decode.Message.Stray
	Stray     func()
	Reconnect func() // a session after the first one was started
	Beat      func() // the reporter's loop is alive

	// Each of these loops calls its hook with true before a round of bounded queries, and with
	// false after it.
	Monitor, FlushLimit func(atWork bool)
}

// CallAtWork calls Hooks.Monitor or Hooks.FlushLimit, if it is set.
func CallAtWork(hook func(atWork bool), atWork bool) {
	if hook != nil {
		hook(atWork)
	}
}

var slotName = lazy.Regexp(`^[a-z0-9_]{1,63}$`)

// Validate returns a Stop with exit code event.ExitUsage if the slot's name is not valid, or if
// there is nothing to relay; it asks no server.
func (c *Config) Validate() error {
	if !slotName().MatchString(c.Slot) {
		return &event.Stop{
			Code: event.ExitUsage, Reason: "config",
			What: fmt.Sprintf("slot name %q: want 1 to 63 of a-z, 0-9 and _", c.Slot),
		}
	}
	if len(c.Tables) == 0 && c.Messages.Prefix == "" {
		return &event.Stop{
			Code: event.ExitUsage, Reason: "config",
			What: "source.tables names no table and source.message_prefix is not set: there is nothing to relay",
		}
	}
	return nil
}

// ReadKeyHash reads the secret of the slot under which ordering keys are digested, for commands
// that have no Record. nil means that there is no record of the slot yet.
func ReadKeyHash(ctx context.Context, q Querier, slot string) (*event.KeyHash, error) {
	var secret [16]byte
	err := Ask(ctx, q, "read the secret of ordering keys", `SELECT key_secret FROM cdc_relay.slots WHERE slot = $1`, slot).Scan(&secret)
	switch {
	case IsNoRows(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return event.NewKeyHash(secret), nil
}

// The values of Config.FailoverSlot; "" counts as FailoverAuto.
const (
	FailoverAuto = "auto"
	FailoverOn   = "on" // also for a slot that exists
	FailoverOff  = "off"
)

// oldestFailover is the oldest version with failover slots: they came with 17.
const oldestFailover = 170000

// MakesFailoverSlot reports whether a slot that is made over conn is made as a failover slot. The
// server says its version when it connects. If the version cannot be read, the slot is a failover
// slot only if the configuration says so.
func (c *Config) MakesFailoverSlot(conn *pgconn.PgConn) bool {
	switch c.FailoverSlot {
	case FailoverOn:
		return true
	case FailoverOff:
		return false
	}
	text := conn.ParameterStatus("server_version")
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(text)
	}
	major, err := strconv.Atoi(text[:end])
	return err == nil && major*10_000 >= oldestFailover
}

// CheckFailoverSlot returns a Stop with exit code event.ExitUsage if a failover slot is asked for
// on a server that has none.
func CheckFailoverSlot(ctx context.Context, q Querier, c *Config) error {
	if c.FailoverSlot != FailoverOn {
		return nil
	}
	var version int
	var text string
	err := Ask(ctx, q, "read server_version", `SELECT current_setting('server_version_num')::int, current_setting('server_version')`).Scan(&version, &text)
	if err != nil {
		return err
	}
	if version < oldestFailover {
		return &event.Stop{
			Code: event.ExitUsage, Reason: "config",
			What: fmt.Sprintf("source.failover_slot: on needs PostgreSQL 17 or newer, and this server is %s", text),
			Fix:  "set source.failover_slot to auto, or upgrade PostgreSQL",
		}
	}
	return nil
}

// oldestServer is the oldest version that a relay works with: logical messages in the stream and
// pg_stat_replication_slots both came with 14.
const oldestServer = 140000

// ServerSettings are what the server says of itself that a relay must know before it begins.
type ServerSettings struct {
	version             int // server_version_num
	versionText         string
	walLevel, encoding  string
	SynchronousStandbys string // synchronous_standby_names
	Segment             uint64 // size in bytes of a WAL file
}

// ReadServerSettings reads the settings in one statement.
func ReadServerSettings(ctx context.Context, q Querier) (s ServerSettings, err error) {
	err = Ask(ctx, q, "read server settings", `SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('wal_level'),
			current_setting('server_encoding'), current_setting('synchronous_standby_names'), pg_size_bytes(current_setting('wal_segment_size'))`).
		Scan(&s.version, &s.versionText, &s.walLevel, &s.encoding, &s.SynchronousStandbys, &s.Segment)
	return s, err
}

// CheckServer checks the server version and wal_level.
func CheckServer(ctx context.Context, q Querier) error {
	s, err := ReadServerSettings(ctx, q)
	if err != nil {
		return err
	}
	return s.CheckVersion()
}

// CheckVersion checks the server version and wal_level.
func (s ServerSettings) CheckVersion() error {
	if s.version < oldestServer {
		return &event.Stop{
			Code: event.ExitFailure, Reason: "server_version",
			What: "PostgreSQL " + s.versionText + " is too old", Fix: "14 or newer is needed",
		}
	}
	if s.walLevel != "logical" {
		return &event.Stop{
			Code: event.ExitFailure, Reason: "wal_level",
			What: fmt.Sprintf("wal_level is %s, not logical", s.walLevel),
			Fix:  "ALTER SYSTEM SET wal_level = logical, then restart the server",
		}
	}
	return nil
}

// CheckEncoding is ServerSettings.CheckEncoding for a caller that has not read the settings.
func CheckEncoding(ctx context.Context, q Querier) error {
	s, err := ReadServerSettings(ctx, q)
	if err != nil {
		return err
	}
	return s.CheckEncoding()
}

// CheckEncoding refuses a database whose text is bytes of no encoding: the server sends them as
// they are, and no broker's reader would know what they mean.
func (s ServerSettings) CheckEncoding() error {
	if s.encoding != "SQL_ASCII" {
		return nil
	}
	return &event.Stop{
		Code: event.ExitFailure, Reason: "encoding",
		What: "the database has encoding SQL_ASCII: what its text means is not known, and it cannot be sent as UTF-8",
		Fix:  "move its data to a database of encoding UTF8: CREATE DATABASE ... TEMPLATE template0 ENCODING 'UTF8', then pg_dump and pg_restore",
	}
}

// UnconvertibleEncoding returns the encoding of a database that may hold text which PostgreSQL
// cannot convert to UTF-8; "" means that all text can be converted. LATIN1 has a character for each
// byte, WIN1252 has none for five bytes. Only a client that writes in the database's own encoding
// can have put such a byte there.
func UnconvertibleEncoding(ctx context.Context, q Querier) (encoding string, err error) {
	if err := Ask(ctx, q, "read server_encoding", `SELECT current_setting('server_encoding')`).Scan(&encoding); err != nil || encoding == "UTF8" {
		return "", err
	}
	var all []byte
	for b := 0x80; b <= 0xff; b++ { // below it is ASCII
		all = append(all, byte(b))
	}
	err = Ask(ctx, q, "convert text to UTF-8", `SELECT convert($1, current_setting('server_encoding')::name, 'UTF8')`, all).Scan(&all)
	if isUnconvertible(err) {
		return encoding, nil
	}
	return "", err
}

// KeepSize is max_slot_wal_keep_size in bytes, in SQL; a value below 0 means unlimited. The setting
// is in MB.
const KeepSize = `(SELECT CASE WHEN setting::bigint < 0 THEN -1 ELSE setting::bigint * 1048576 END FROM pg_settings WHERE name = 'max_slot_wal_keep_size')`

// CheckGuard returns an error if the disk guard begins at a share of max_slot_wal_keep_size and the
// server has no such limit.
func CheckGuard(ctx context.Context, q Querier, limits guard.Limits) error {
	if limits.Percent == 0 {
		return nil
	}
	var keep int64
	if err := Ask(ctx, q, "read max_slot_wal_keep_size", `SELECT `+KeepSize).Scan(&keep); err != nil {
		return err
	}
	_, err := limits.At(keep)
	return err
}
