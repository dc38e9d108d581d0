package retry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// Load ties the siding to its line, before either runs: it counts what the tables hold into the line, and learns up to which
// position the stream may repeat it. After an error both are of no use any more; an *outbox.Stop says that a newer leader
// leads.
//
// It comes after the epoch was raised: from then on no former leader adds a row that would not be counted.
func (s *Siding) Load(ctx context.Context, line Line) error {
	s.line = line
	// A block of our own first: every row that is there has a lower number, every row of ours will have a higher one. So the
	// feeder may read the former at once, and the latter when the writer has seen them committed.
	first, err := s.cfg.Store.Lease(ctx)
	if err != nil {
		return s.loading(err)
	}
	s.writer.next, s.writer.end = first, first+store.LeaseSize
	s.writer.acked.Store(first - 1)
	s.known.highest, err = s.cfg.Store.Load(ctx, func(c store.Count) error {
		ctx, cancel := context.WithTimeout(ctx, loadPatience)
		defer cancel()
		return line.Load(ctx, &c.Event, c.Rows)
	})
	return s.loading(err)
}

// loadPatience bounds the wait for a broker that does not say yet where an event belongs. It does not bound the whole, which
// takes as long as the table is large; the statements have a bound of their own.
const loadPatience = 5 * time.Minute

func (s *Siding) loading(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrFenced):
		return s.stop()
	}
	return fmt.Errorf("load the counts of parked rows: %w", err)
}

// stop is the end of a leader that has a successor.
func (s *Siding) stop() *outbox.Stop { return dlq.Fenced(s.cfg.Slot, s.cfg.Epoch) }
