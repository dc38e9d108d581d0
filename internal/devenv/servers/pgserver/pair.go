// A pair of servers for promotions: a primary and a standby that keeps its failover slots
// (PostgreSQL 17 and later).

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// Pair is a primary and its standby, which change places: Promote makes the standby the primary,
// Join makes a new standby of it. Each standby has a physical slot of its own name on the primary,
// which the primary's synchronized_standby_slots names. Its methods are not for several goroutines.
type Pair struct {
	Primary, Standby *Postgres // Standby is nil from Promote to Join
	ports            [2]int    // of the two places; a server that comes back has the port it had
}

// StartPair starts both. opt.Settings holds for both of them.
func StartPair(ctx context.Context, opt Options) (_ *Pair, err error) {
	settings := map[string]string{"sync_replication_slots": "on", "hot_standby_feedback": "on"}
	maps.Copy(settings, opt.Settings)
	opt.Settings = settings
	p := &Pair{}
	if p.Primary, err = Start(ctx, opt); err != nil {
		return nil, err
	}
	for i := range p.ports {
		if p.ports[i], err = processes.UnusedPort(); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	if p.ports[0], err = p.Primary.port(); err == nil {
		err = p.Join(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close ends both.
func (p *Pair) Close() (err error) {
	for _, server := range []*Postgres{p.Primary, p.Standby} {
		if server != nil {
			err = errors.Join(err, server.Close())
		}
	}
	return err
}

// Addrs are host:port of both places, in an order that does not change. At one of them there may be
// no server.
func (p *Pair) Addrs() []string {
	return []string{serverURL(p.ports[0]).Host, serverURL(p.ports[1]).Host}
}

// StandbySlot is the physical slot of the standby at the place where the primary is not.
func (p *Pair) StandbySlot() string {
	if p.Primary.Addr() == p.Addrs()[0] {
		return standbySlots[1]
	}
	return standbySlots[0]
}

var standbySlots = [2]string{"standby_a", "standby_b"}

// Join makes a standby of the primary, which goes on meanwhile, at the place that is empty, and
// returns when it streams and the primary waits for it.
func (p *Pair) Join(ctx context.Context) error {
	slot := p.StandbySlot()
	if err := p.Primary.exec(ctx, "SELECT pg_create_physical_replication_slot($1, true)", slot); err != nil {
		return err
	}
	port := p.ports[0]
	if slot == standbySlots[1] {
		port = p.ports[1]
	}
	standby, err := p.Primary.onlineCopy(ctx, port, slot)
	if err != nil {
		return err
	}
	p.Standby = standby
	err = processes.Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		var active bool
		err := p.Primary.Query(ctx, &active, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", slot)
		return active, err
	})
	if err != nil {
		return err
	}
	return p.Primary.Set(ctx, "synchronized_standby_slots", slot)
}

// Rejoin starts the former primary, which was stopped by Promote, as the standby that it can be:
// with its own data, and the slots that it had.
func (p *Pair) Rejoin(ctx context.Context, former *Postgres) error {
	slot := p.StandbySlot()
	if err := p.Primary.exec(ctx, "SELECT pg_create_physical_replication_slot($1, true)", slot); err != nil {
		return err
	}
	if err := former.follow(p.Primary, slot); err != nil {
		return err
	}
	if err := former.Start(ctx); err != nil {
		return err
	}
	p.Standby = former
	return p.Primary.Set(ctx, "synchronized_standby_slots", slot)
}

// AwaitDatabase waits until the standby has a database.
func (p *Pair) AwaitDatabase(ctx context.Context, name string) error {
	err := processes.Poll(ctx, 50*time.Millisecond, func() (there bool, err error) {
		err = p.Standby.Query(ctx, &there, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name)
		return there, err
	})
	if err != nil {
		return fmt.Errorf("wait for database %s on the standby: %w", name, err)
	}
	return nil
}

// AwaitSynced waits until the standby has a logical slot of the name that a promotion can use. The
// slot must be read, and something be committed, meanwhile: a new one is copied for good once it
// has passed what the standby does not have.
func (p *Pair) AwaitSynced(ctx context.Context, slot string) error {
	err := processes.Poll(ctx, 200*time.Millisecond, func() (usable bool, err error) { return p.Synced(ctx, slot) })
	if err != nil {
		return fmt.Errorf("wait for slot %s on the standby: %w", slot, err)
	}
	return nil
}

// Synced reports whether the standby has such a slot, and has it copied soon: else it would take
// until the next list of running transactions, which an idle server does not write, and until the
// worker wakes that copies slots, up to half a minute.
func (p *Pair) Synced(ctx context.Context, slot string) (usable bool, err error) {
	if err = p.Primary.exec(ctx, "SELECT pg_current_xact_id(), pg_log_standby_snapshot()"); err == nil {
		err = p.Standby.exec(ctx, "SELECT pg_reload_conf()")
	}
	if err == nil {
		err = p.Standby.Query(ctx, &usable, `SELECT count(*) > 0 FROM pg_replication_slots
			WHERE slot_name = $1 AND synced AND NOT temporary AND invalidation_reason IS NULL`, slot)
	}
	return usable, err
}

// End ends the primary: stopped in order, when the standby has all that it wrote, or killed.
func (p *Pair) End(planned bool) error {
	if planned {
		_, err := p.Primary.Stop("fast")
		return err
	}
	return p.Primary.Kill()
}

// Promote makes the standby the primary, once the primary has ended, and returns that one.
func (p *Pair) Promote(ctx context.Context) (former *Postgres, err error) {
	var promoted bool
	if err := p.Standby.Query(ctx, &promoted, "SELECT pg_promote(true, 600)"); err != nil {
		return nil, err
	}
	if !promoted {
		return nil, fmt.Errorf("promote the standby: it did not end its recovery")
	}
	former, p.Primary, p.Standby = p.Primary, p.Standby, nil
	return former, nil
}
