package devenv

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
)

// ReportWatch sees every report of the relays that reach PostgreSQL through a proxy, and leaves a mark with the highest
// flush position at the consumer whenever that has gone up; see Mark. FlushWatch sees only what has arrived at
// the server, and only now and then.
type ReportWatch struct {
	consumer Witness
	seen     atomic.Int64
	highest  atomic.Uint64
	moved    chan struct{} // cap 1
}

// NewReportWatch watches the connections that are opened from now on.
func NewReportWatch(p *Proxy, c Witness) *ReportWatch {
	w := &ReportWatch{consumer: c, moved: make(chan struct{}, 1)}
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

// Run sends the marks until ctx ends, which is no error. While the broker is away they wait.
func (w *ReportWatch) Run(ctx context.Context) error {
	var sent uint64
	send := func() (bool, error) {
		flush := w.highest.Load()
		if flush == sent {
			return true, nil
		}
		err := w.consumer.markFlush(ctx, pglogrepl.LSN(flush))
		if err == nil {
			sent = flush
		}
		return err == nil, nil
	}
	for ctx.Err() == nil {
		select {
		case <-w.moved:
			_ = poll(ctx, 50*time.Millisecond, send) //nolint:errcheck // ctx has ended, which the loop sees
		case <-ctx.Done():
		}
	}
	return nil
}
