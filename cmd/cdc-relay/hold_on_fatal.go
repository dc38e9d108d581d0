// run --hold-on-fatal: the process stays up after the stream has ended for good.

package main

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// ending is why the stream has ended for good, while the process stays up to report it.
type ending struct {
	stop *event.Stop
	at   time.Time
}

// stayUp keeps the process up after an end that only a person can fix (exit 3 or 4). It is for
// orchestrators that would restart the relay again and again. Meanwhile the relay is not ready and
// reports why. It returns true when an operator has decided, and the stream may run again, and
// false when ctx is done or err is another end.
func (v *process) stayUp(ctx context.Context, err error, log *zap.Logger) (again bool) {
	var stop *event.Stop
	if !errors.As(err, &stop) || stop.Code != event.ExitOperator && stop.Code != event.ExitMapping {
		return false
	}
	v.ended.Store(&ending{stop, time.Now()})
	log.Error("relaying has ended, process stays up to report it", zap.Error(err))
	if !v.stream.AwaitDecision(ctx) {
		return false
	}
	log.Info("the slot's record was changed by an operator: relaying begins again")
	v.ended.Store(nil)
	return true
}

// show replaces the stream's phase with the end.
func (e *ending) show(out *ops.Snapshot) {
	out.Phase, out.Why, out.Reason, out.Finding, out.Since = ops.Stopped, e.stop.Error(), e.stop.Reason, e.stop.Finding, e.at
}
