// ReportWatch sees every position that a relay reports, at a proxy in front of PostgreSQL.

package consumers

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// ReportWatch sees every report of the relays that reach PostgreSQL through a proxy, and leaves a
// mark with the highest flush position at the consumer whenever that has gone up; see Mark.
// FlushWatch sees only what has arrived at the server, and only now and then.
type ReportWatch struct {
	consumer   Witness
	retryTable string // URL of the database whose snapshot a mark has; "": it has none
	seen       atomic.Int64
	highest    atomic.Uint64
	moved      chan struct{} // cap 1
	sent       pglogrepl.LSN // by Run
}

// NewReportWatch watches the connections that are opened from now on. retryTable is the address of
// the database when LogRetryTable keeps a log of its retry table, else "".
func NewReportWatch(p *netproxy.Proxy, c Witness, retryTable string) *ReportWatch {
	w := &ReportWatch{consumer: c, retryTable: retryTable, moved: make(chan struct{}, 1)}
	p.WatchReports(w.note)
	return w
}

func (w *ReportWatch) note(flush pglogrepl.LSN) {
	w.seen.Add(1)
	for {
		highest := w.highest.Load()
		if uint64(flush) <= highest {
			return
		}
		if w.highest.CompareAndSwap(highest, uint64(flush)) {
			break
		}
	}
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

// Seen is how many reports have gone through the proxy.
func (w *ReportWatch) Seen() int64 { return w.seen.Load() }

// Run sends the marks until ctx ends, which is no error. While the broker or the database is away
// they wait.
func (w *ReportWatch) Run(ctx context.Context) error {
	if w.retryTable == "" {
		return w.send(ctx, nil)
	}
	for ctx.Err() == nil {
		err := pgserver.OnConn(ctx, w.retryTable, func(conn *pgx.Conn) error { return w.send(ctx, conn) })
		if ctx.Err() == nil && err != nil {
			pause, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			<-pause.Done()
			cancel()
		}
	}
	return nil
}

// send sends the marks until ctx ends or the connection, nil for none.
func (w *ReportWatch) send(ctx context.Context, conn *pgx.Conn) error {
	for ctx.Err() == nil {
		err := processes.Poll(ctx, 50*time.Millisecond, func() (bool, error) { return w.sendOne(ctx, conn) })
		if errors.Is(err, processes.ErrPatience) {
			continue
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-w.moved:
		case <-ctx.Done():
		}
	}
	return nil
}

// sendOne marks what has gone up since the last time; false when the broker is away.
func (w *ReportWatch) sendOne(ctx context.Context, conn *pgx.Conn) (_ bool, err error) {
	m := checker.Mark{Flush: pglogrepl.LSN(w.highest.Load())}
	if m.Flush == w.sent {
		return true, nil
	}
	if conn != nil {
		if m.Snapshot, err = ReadSnapshot(ctx, conn); err != nil {
			return false, err
		}
	}
	if err := w.consumer.MarkFlush(ctx, m); err != nil {
		return false, nil
	}
	w.sent = m.Flush
	return true, nil
}
