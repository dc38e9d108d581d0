// The baseline of a drain: a reader of the slot that throws the rows away.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"golang.org/x/sys/unix"
)

// bareSlot stands where the relay's slot stood before the rows were committed. It is never reported
// to, so that it can be read again and again.
const bareSlot = "bare"

// freshWAL makes the bare slot again. What no slot needs any more of the WAL goes, and no
// checkpoint comes while something is measured.
func (s *kafkaStand) freshWAL(ctx context.Context) error {
	return execSQL(ctx, s.db, "CHECKPOINT",
		"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '"+bareSlot+"'",
		"SELECT pg_create_logical_replication_slot('"+bareSlot+"', 'pgoutput')")
}

// coalescer reads as the relay does when much waits: what the server has written is left to
// gather for a moment after a small read, since a reader that takes every row at once is woken for
// each, and the server pays for that.
type coalescer struct {
	from  io.Reader
	pause time.Duration // 0: reads at once
	small bool          // the last read was
}

const smallRead = 32 << 10 // bytes

func (g *coalescer) Read(p []byte) (int, error) {
	if g.small && g.pause > 0 {
		pause := unix.NsecToTimespec(g.pause.Nanoseconds())
		_ = unix.Nanosleep(&pause, nil) //nolint:errcheck // Go's own timers may wait a millisecond; cut short by a signal it is a smaller coalesced read
	}
	n, err := g.from.Read(p)
	g.small = n < smallRead
	return n, err
}

// readSlot reads so many rows from the bare slot with the settings that the relay has, and does
// nothing with them.
func (s *kafkaStand) readSlot(ctx context.Context, rows int, pause time.Duration) (_ ran, err error) {
	conn, err := s.connectSlot(ctx, pause)
	if err != nil {
		return ran{}, err
	}
	defer func() { err = errors.Join(err, s.leaveSlot(ctx, conn)) }()
	cut := context.AfterFunc(ctx, func() { conn.Conn().Close() })
	defer cut()
	own, err := cpuTime(os.Getpid())
	if err != nil {
		return ran{}, err
	}
	options := pglogrepl.StartReplicationOptions{PluginArgs: []string{"proto_version '1'", `publication_names '"bench"'`, "messages 'true'"}}
	if err := pglogrepl.StartReplication(ctx, conn, bareSlot, 0, options); err != nil {
		return ran{}, fmt.Errorf("start replication: %w", err)
	}
	took, err := countRows(conn, rows)
	if err != nil {
		return ran{}, err
	}
	found := ran{rate: float64(rows-1) / took.Seconds()}
	if found.cost.publisher, err = cpuTime(os.Getpid()); err != nil {
		return ran{}, err
	}
	found.cost.publisher -= own
	found.cost.walsender, err = cpuTime(int(conn.PID()))
	found.cost = found.cost.per(rows)
	return found, err
}

// countRows receives so many rows and returns the time from the first to the last.
func countRows(conn *pgconn.PgConn, rows int) (time.Duration, error) {
	var first time.Time
	for n := 0; n < rows; {
		// another context costs more than the message
		msg, err := conn.ReceiveMessage(context.Background())
		if err != nil {
			return 0, fmt.Errorf("receive: %w", err)
		}
		data, ok := msg.(*pgproto3.CopyData)
		if !ok {
			return 0, fmt.Errorf("receive: unexpected %T", msg)
		}
		const walHeader = 1 + 8 + 8 + 8 // of XLogData
		if data.Data[0] == pglogrepl.XLogDataByteID && len(data.Data) > walHeader && data.Data[walHeader] == 'I' {
			if n++; n == 1 {
				first = time.Now()
			}
		}
	}
	return time.Since(first), nil
}

func (s *kafkaStand) connectSlot(ctx context.Context, pause time.Duration) (*pgconn.PgConn, error) {
	cfg, err := pgconn.ParseConfig(s.db)
	if err != nil {
		return nil, fmt.Errorf("read address of PostgreSQL: %w", err)
	}
	cfg.RuntimeParams["replication"] = "database"
	cfg.RuntimeParams["wal_sender_timeout"] = "0" // nothing is reported to it
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return pgproto3.NewFrontend(bufio.NewReaderSize(&coalescer{from: r, pause: pause}, 512<<10), w)
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return conn, nil
}

// leaveSlot closes the connection and returns when the slot is free.
func (s *kafkaStand) leaveSlot(ctx context.Context, stream *pgconn.PgConn) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = stream.Close(closing) // only read from
	return s.awaitFree(ctx, bareSlot)
}

// awaitFree returns when nobody reads the slot.
func (s *stand) awaitFree(ctx context.Context, slot string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.db)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(ctx)
	for active := true; active; {
		if err := waitUntil(ctx, time.Now().Add(5*time.Millisecond)); err != nil {
			return fmt.Errorf("wait for the slot: %w", err)
		}
		err := conn.QueryRow(ctx, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", slot).Scan(&active)
		if err != nil {
			return fmt.Errorf("ask for the slot: %w", err)
		}
	}
	return nil
}
