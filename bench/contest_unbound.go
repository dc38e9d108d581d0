// The fault of the contest: a binding is removed for some seconds, and nothing takes what is
// published meanwhile.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// unbound is how many events are lost for ever while the queue's binding is away, of both sides.
func (c *contest) unbound(ctx context.Context, bind, unbind func(destination) error) ([]result, error) {
	rival, err := c.rivalDatabase(ctx)
	if err != nil {
		return nil, err
	}
	theirs, err := c.unboundBy(ctx, c.debezium(tuned), rival, bind, unbind)
	if err != nil {
		return nil, fmt.Errorf("debezium: %w", err)
	}
	c.say("    Debezium, tuned: lost %s", theirs)
	ours, err := c.unboundBy(ctx, c.ours, c.db, bind, unbind)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	c.say("    relay: lost %s", ours)
	return []result{{
		name: fmt.Sprintf("%s, binding of the queue removed for %s under %s/s, then restored: lost for ever", c.at.name(), c.size.unbound, thousands(liveRate)),
		ours: ours.String(), base: theirs.String(), value: float64(ours.lost), unit: "events", none: true, once: true,
		short: fmt.Sprintf("binding removed for %s under live rows: events lost", c.size.unbound), usual: dash,
	}}, nil
}

// losses are rows that never came, and those that came after a later one of their key.
type losses struct{ lost, unordered, rows int }

func (l losses) String() string { return fmt.Sprintf("%s of %s", thousands(l.lost), thousands(l.rows)) }

// unboundBy has one side publish live rows while the binding goes and comes.
func (c *contest) unboundBy(ctx context.Context, start launch, db string, bind, unbind func(destination) error) (_ losses, err error) {
	if err := execSQL(ctx, db, "TRUNCATE outbox"); err != nil {
		return losses{}, err
	}
	to, err := c.at.destination(ctx, 0, true)
	if err != nil {
		return losses{}, err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	r, err := c.startStreaming(ctx, start, db, to)
	if err != nil {
		return losses{}, err
	}
	p := c.phase(db, 2*c.size.unbound)
	written := make(chan error, 1)
	life, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, err := p.run(life)
		written <- err
	}()
	began := time.Now()
	err = waitUntil(ctx, began.Add(c.size.unbound/2))
	if err == nil {
		err = unbind(to)
	}
	if err == nil {
		err = errors.Join(waitUntil(ctx, began.Add(3*c.size.unbound/2)), bind(to))
	}
	if err != nil {
		stop()
	}
	if err = errors.Join(err, <-written); err != nil {
		return losses{}, r.failed(err)
	}
	found, err := c.lost(ctx, p, r, to)
	if err != nil {
		return losses{}, r.failed(err)
	}
	return found, r.stop(ctx)
}

// lost waits until all rows of a phase have come, or nothing more of them comes: rows that were
// committed later have.
func (c *contest) lost(ctx context.Context, p *phase, r *contender, to destination) (losses, error) {
	last := c.phase(p.db, time.Second)
	if _, err := last.run(ctx); err != nil {
		return losses{}, err
	}
	moved, seen := time.Now(), 0
	for {
		arrived, err := to.arrivals(ctx, 0)
		if err = errors.Join(err, alive(r)()); err != nil {
			return losses{}, err
		}
		if len(arrived) > seen {
			moved, seen = time.Now(), len(arrived)
		}
		found, err := p.losses(arrived)
		late, lateErr := last.losses(arrived)
		if err = errors.Join(err, lateErr); err != nil {
			return losses{}, err
		}
		quiet := time.Since(moved)
		if late.lost == 0 && (found.lost == 0 || quiet > c.size.quiet) || quiet > javaPatience {
			if found.unordered+late.unordered > 0 || late.lost > 0 {
				err = fmt.Errorf("%d rows came after a later one of their key; of those committed in the end %d have not come", found.unordered+late.unordered, late.lost)
			}
			return found, err
		}
		if err := waitUntil(ctx, time.Now().Add(200*time.Millisecond)); err != nil {
			return losses{}, err
		}
	}
}
