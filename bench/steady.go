// A steady load: rows that are committed at a fixed rate while two relays stream them, and what
// they cost each.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// pour commits the events of l, from one of them on, at so many a second, in transactions of
// rowsPerTx rows, until it is enough: nil, until all are committed. It returns how many events
// there are then. The keys take turns.
func (s *stand) pour(ctx context.Context, enough <-chan struct{}, first int64, from int, l runSpec, rate int) (n int, err error) {
	conn, err := pgx.Connect(ctx, s.db)
	if err != nil {
		return 0, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	column, value := "", ""
	if l.destination != "" {
		column, value = ", destination", ", '"+l.destination+"'"
	}
	sql := `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload` + column + `)
		SELECT lpad(to_hex($1::bigint + i), 32, '0')::uuid, 'order', 'customer-' || i % $4, 'created',
			('{"n": ' || i || ', "pad": "' || repeat('x', $5 - 18 - length(i::text)) || '"}')::jsonb` + value + `
		FROM generate_series($2::bigint, $3::bigint) i`
	start := time.Now()
	for i := from; i < l.events; i += l.rowsPerTx {
		select {
		case <-enough:
			return i, nil
		default:
		}
		if err := waitUntil(ctx, start.Add(time.Duration(i-from)*time.Second/time.Duration(rate))); err != nil {
			return i, err
		}
		if _, err := conn.Exec(ctx, sql, first, i, min(i+l.rowsPerTx, l.events)-1, l.keys.count, l.bytes()); err != nil {
			return i, fmt.Errorf("insert: %w", err)
		}
	}
	return l.events, nil
}

// abreastSlot is that of the second relay.
const abreastSlot = "abreast"

// abreast is two relays that stream the same rows at the same time, each from a slot and to a topic
// of its own. What the machine does besides, and how the rows come together before they are read,
// is much the same for both.
type abreast struct {
	*kafkaStand
	l    runSpec
	rate int // rows a second
}

// open makes the second slot, close drops it.
func (a *abreast) open(ctx context.Context) error {
	return a.initSlot(ctx, a.configOf(abreastSlot, "none"))
}

func (a *abreast) close(ctx context.Context) error {
	if err := a.awaitFree(ctx, abreastSlot); err != nil {
		return err
	}
	return execSQL(context.WithoutCancel(ctx), a.db, "SELECT pg_drop_replication_slot('"+abreastSlot+"')",
		// it is missed otherwise when it is made again
		"DELETE FROM cdc_relay.slots WHERE slot = '"+abreastSlot+"'")
}

// configOf is that of a relay with this slot.
func (a *abreast) configOf(slot, topic string) string {
	return strings.Replace(a.config(topic), "slot: bench\n", "slot: "+slot+"\n", 1)
}

// streaming is one of the relays, and where its events go.
type streaming struct {
	relay *runner.Relay
	to    *topic
}

// run has both stream the events of l, and checks both histories. w watches the second relay, if
// there is one. What is found is the processor time of each relay per event, without its start and
// the first moments, in which it makes what it keeps.
func (a *abreast) run(ctx context.Context, w *watcher) (found [2]ran, err error) {
	if err := errors.Join(a.freshWAL(ctx), execSQL(ctx, a.db, "TRUNCATE outbox")); err != nil {
		return found, err
	}
	var both [2]*streaming
	defer func() {
		for _, r := range both {
			if r != nil {
				// it has ended where all went well
				err = errors.Join(err, r.relay.Kill(), r.to.close())
			}
		}
	}()
	for i, slot := range []string{"bench", abreastSlot} {
		if both[i], err = a.start(ctx, slot, []*watcher{nil, w}[i]); err != nil {
			return found, err
		}
	}
	first := a.nextRun()
	if found, err = a.stream(ctx, first, both); err != nil {
		return found, fmt.Errorf("%w: %s%s", err, both[0].relay.Log(), both[1].relay.Log())
	}
	for i, r := range both {
		if err := a.stopRelay(r.relay); err != nil {
			return found, err
		}
		h, err := a.readTable(ctx, first, a.l)
		if err != nil {
			return found, err
		}
		h.traced = i == 1 && w != nil
		if err := r.to.check(ctx, h); err != nil {
			return found, err
		}
	}
	return found, nil
}

// start starts a relay and waits until it streams.
func (a *abreast) start(ctx context.Context, slot string, w *watcher) (*streaming, error) {
	to, err := a.newTopic(ctx, a.l.partitions)
	if err != nil {
		return nil, err
	}
	a.watch = w
	defer func() { a.watch = nil }()
	relay, err := a.startLive(ctx, a.configOf(slot, to.name))
	if err != nil {
		return nil, errors.Join(err, to.close())
	}
	return &streaming{relay: relay, to: to}, nil
}

// stream is the load. The relays' clocks are read when both are through its beginning, and at its
// end.
func (a *abreast) stream(ctx context.Context, first int64, both [2]*streaming) (found [2]ran, err error) {
	beginning := a.l
	beginning.events = a.l.events / 6 / a.l.rowsPerTx * a.l.rowsPerTx
	before, err := a.through(ctx, first, 0, beginning, both)
	if err != nil {
		return found, err
	}
	began, counted := time.Now(), a.l.events-beginning.events
	after, err := a.through(ctx, first, beginning.events, a.l, both)
	if err != nil {
		return found, err
	}
	for i := range both {
		found[i].rate = float64(counted) / after.poured.Sub(began).Seconds()
		found[i].cost.publisher = (after.clock[i] - before.clock[i]) / time.Duration(counted)
	}
	return found, nil
}

// reading is what is read when both relays are through a part of the load.
type reading struct {
	poured time.Time // the last row was committed
	clock  [2]time.Duration
}

// through commits the events of l from one on, and has both relays get through them.
func (a *abreast) through(ctx context.Context, first int64, from int, l runSpec, both [2]*streaming) (r reading, err error) {
	if _, err := a.pour(ctx, nil, first, from, l, a.rate); err != nil {
		return r, err
	}
	r.poured = time.Now()
	for _, side := range both {
		if _, err := watch(ctx, side.to, l.events, func() error { return alive(side.relay) }); err != nil {
			return r, err
		}
	}
	for i, side := range both {
		if r.clock[i], err = cpuTime(side.relay.Pid()); err != nil {
			return r, err
		}
	}
	return r, nil
}
