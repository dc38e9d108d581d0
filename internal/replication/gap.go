// The range of positions in which rows may be missing: an error about publication or tables names
// it, so that the operator knows where to look.

package replication

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// nameGap adds the range of positions to a failed check of publication or tables: rows committed in
// it may never have been sent. It begins at the last successful check: the one of this process, or
// else the last one that a relay recorded.
func (s *Stream) nameGap(ctx context.Context, err error) error {
	var stop *event.Stop
	if !errors.As(err, &stop) || stop.Code != event.ExitOperator || stop.Reason != "publication" && stop.Reason != "table" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	view, readErr := slot.Read(ctx, s.pool, s.cfg.Slot)
	if readErr != nil || view == nil {
		return err
	}
	from := s.common.Good()
	if from == 0 {
		rec, err := slot.ReadRecord(ctx, s.pool, s.cfg.Slot)
		if err == nil && rec != nil {
			from = rec.Good
		}
	}
	if from == 0 {
		from = view.ConfirmedFlush
	}
	named := *stop
	named.What += fmt.Sprintf("; rows committed between %s and %s may be missing", from, view.Current)
	return &named
}
