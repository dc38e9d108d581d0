// Errors that every step may have.

package recovery

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// usage is exit 2: nothing is changed.
func usage(what, fix string) *event.Stop {
	return &event.Stop{Code: event.ExitUsage, Reason: "usage", What: what, Fix: fix}
}

// readError is an error of reading a table.
func (r *run) readError(doing string, err error) error {
	if err == nil {
		return nil
	}
	if refusal, refused := tableread.IsRefusal(err); refused {
		return &event.Stop{
			Code: event.ExitFailure, Reason: "rights",
			What: fmt.Sprintf("table %s, whose rows are copied, %s", refusal.Table, refusal.Why), Fix: refusal.Fix,
		}
	}
	if stop := (*event.Stop)(nil); errors.As(err, &stop) {
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// asWhereError returns an error that the values of rows have caused in the WHERE: it may be right
// in form and divide by zero.
func (r *run) asWhereError(err error) error {
	if state := source.SQLState(err); r.opt.Where != "" && len(state) == 5 && state[:2] == "22" {
		return usage("the WHERE fails at a row: "+source.OneLine(err).Error(), "correct it")
	}
	return err
}
