// Package accept carries out an operator's decision to go on after exit 3, with what was found.
package accept

import (
	"cmp"
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Run records that an operator accepts a finding, by its ID: the relay goes on at its next start,
// or by itself when it was started with --hold-on-fatal. It refuses with event.ExitUsage, and
// changes nothing, when another finding is there by now, or none, and while somebody reads the
// slot.
//
// The decision, the audit and the interval that may be missing are one transaction, which compares
// the record with what the ID was computed from. So an ID accepts what its reader has seen, and
// nothing that came later.
func Run(ctx context.Context, c source.Config, opt Options) (Result, error) {
	if err := cmp.Or(c.Validate(), opt.Validate()); err != nil {
		return Result{}, err
	}
	pool, err := source.ConnectPool(&c)
	if err != nil {
		return Result{}, err
	}
	defer source.ClosePool(pool)
	// Connect would create the schema, perhaps in another database than was meant.
	switch version, err := schema.Version(ctx, pool); {
	case err != nil:
		return Result{}, source.OrFatal(&c, err)
	case version == 0:
		return Result{}, usage("no relay has used this database: nothing was found here that could be accepted", "correct source.url")
	}
	stream, id, err := slot.Connect(ctx, pool, &c)
	if err != nil {
		return Result{}, source.OrFatal(&c, err)
	}
	defer source.CloseStream(stream)
	a := &acceptance{c: &c, pool: pool, opt: opt, result: Result{Finding: opt.ID}}
	err = slot.Locked(ctx, pool, &c, func(ctx context.Context) error {
		if opt.Rows.given() == 0 {
			if err := a.awaitFree(ctx); err != nil {
				return err
			}
		}
		if a.found, err = slot.Examine(ctx, pool, &c, id); err != nil {
			return err
		}
		if opt.Rows.given() > 0 {
			return a.rows(ctx)
		}
		return a.slot(ctx)
	})
	return a.result, err
}

// holderTimeout is how long the server may still show the slot as active after the relay's process
// has ended.
const holderTimeout = 5 * time.Second

// awaitFree waits a moment while a relay reads the slot, so that accept can follow its end at once.
func (a *acceptance) awaitFree(ctx context.Context) error {
	for give := time.Now().Add(holderTimeout); time.Now().Before(give); {
		view, err := slot.Read(ctx, a.pool, a.c.Slot)
		if err != nil || view == nil || !view.Active() || !view.ReadByRelay() || !source.Sleep(ctx, 100*time.Millisecond) {
			return err
		}
	}
	return nil
}
