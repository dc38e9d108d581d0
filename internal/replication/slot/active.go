// Who holds the slot: the error when it must be free and is not, and the slot as our own walsender
// holds it.

package slot

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// InUse is the error for a slot that must be free and is not. The relay waits for a walsender of a
// relay, which may not have noticed yet that its client died; another program's is the operator's
// to end.
func InUse(c *source.Config, view *View) error {
	if view.HeldByRelay() {
		return fmt.Errorf("slot %q is held by %s (pid %d)", c.Slot, view.Holder, view.ActivePID)
	}
	return &event.Stop{
		Code: event.ExitOperator, Reason: "slot_held",
		What: fmt.Sprintf("slot %q is held by %q (role %s, pid %d), which is not a cdc-relay", c.Slot, view.Holder, view.HolderUser, view.ActivePID),
		Fix:  "stop that program, or choose another source.slot",
	}
}

// ReadActive is the slot's row when our walsender pid holds it.
func ReadActive(ctx context.Context, q source.Querier, c *source.Config, pid uint32) (*View, error) {
	view, err := Read(ctx, q, c.Slot)
	if err != nil {
		return nil, err
	}
	if view == nil || view.ActivePID != int32(pid) {
		return nil, ErrNotActive
	}
	return view, nil
}

// ErrNotActive says that the slot is gone, or that another session or none holds it.
var ErrNotActive = errors.New("this session no longer holds the slot")
