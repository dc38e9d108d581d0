// The promotion of the demo (WORST=1): the primary is killed under load, and its standby takes its
// place.

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// promotion kills the primary, and promotes its standby.
func (d *demo) promotion(ctx context.Context) error {
	if err := d.standbyReady(ctx); err != nil {
		return err
	}
	// A slot that goes back a little is no slot that passed an event too early, and the samples of
	// its position do not know it.
	d.endMarks()
	d.Say("A bad day: the primary is killed (SIGKILL). Its standby has the slot, which PostgreSQL keeps in step there.")
	killed := time.Now()
	d.found.promotion.outage = d.meter.goAway(killed)
	if err := d.pair.End(false); err != nil {
		return err
	}
	if err := wait(ctx, d.length.down/4); err != nil {
		return err
	}
	before, twice := d.broker.consumer().Count()
	promoted := time.Now()
	former, err := d.pair.Promote(ctx)
	if err != nil {
		return err
	}
	if err := former.Close(); err != nil {
		return err
	}
	d.Say("The standby is promoted. Nobody tells the relay.")
	for now := before; now == before; now, _ = d.broker.consumer().Count() {
		if time.Since(promoted) > patience {
			return fmt.Errorf("waited %s for an event after the promotion; the relay's last lines:\n%s", patience, d.lastLines())
		}
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	d.found.promotion.away = time.Since(killed)
	d.Say("The first event came %s after the promotion began: the relay went on by itself, when the new primary had proven that nothing is missing.", console.Short(time.Since(promoted)))
	if err := d.untilArrived(ctx); err != nil {
		return err
	}
	d.meter.comeBack(time.Now())
	_, now := d.broker.consumer().Count()
	d.found.promotion.repeats = now - twice
	d.Say("Nothing is lost. %s events came twice: the standby's slot was that much behind.", console.Thousands(d.found.promotion.repeats))
	return wait(ctx, d.length.after)
}

// promoted is what the promotion has shown.
type promoted struct {
	outage  int           // which one of the meter's
	away    time.Duration // without an event
	repeats int
}

// standbyReady waits until the standby has the slot, and the relay has written down that the
// primary waits for it.
func (d *demo) standbyReady(ctx context.Context) error {
	if err := d.pair.AwaitSynced(ctx, slot); err != nil {
		return err
	}
	return d.until(ctx, "the standby to be recorded", func(sample) (is bool) {
		on := d.pair.Standby.URL(database)
		err := pgserver.OnConn(ctx, on, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, `SELECT standbys <> '{}' FROM cdc_relay.slots WHERE slot = $1`, slot).Scan(&is)
		})
		return err == nil && is
	})
}
