// The worst day of the demo (WORST=1): the slot is lost under load, and recover sends what it would
// have sent.

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// worstDay loses the slot, lets orders go on for a while, and recovers.
func (d *demo) worstDay(ctx context.Context) error {
	// A new slot begins behind rows whose copies are committed a moment later: the samples of its
	// position would take them for lost.
	d.endMarks()
	d.Say("The worst day: somebody drops the relay's slot, and orders go on.")
	lost := time.Now()
	d.found.lostOutage = d.meter.goAway(lost)
	if err := d.dropSlot(ctx); err != nil {
		return err
	}
	if err := d.until(ctx, "the relay to stop", func(now sample) bool { return now.relay == "stopped" }); err != nil {
		return err
	}
	d.Say("The relay has stopped: what was committed since is in no slot. It stays up (--hold-on-fatal), and says what to do.")
	if err := wait(ctx, d.length.mistake); err != nil {
		return err
	}
	d.Say("One command, while orders come:")
	result, err := runner.RunCommand(ctx, d.binary, d.config(), "recover", "--reason", "somebody dropped the slot")
	if err == nil && result.Code != 0 {
		err = fmt.Errorf("cdc-relay recover: exit code %d: %s%s", result.Code, result.Stdout, result.Stderr)
	}
	if err != nil {
		return err
	}
	d.Say("  $ cdc-relay recover")
	for line := range strings.SplitSeq(strings.TrimSpace(result.Stdout), "\n") {
		d.Say("  %s", line)
	}
	err = d.until(ctx, "the relay to go on", func(now sample) bool { return now.relay != "stopped" })
	if err == nil {
		err = d.untilNoneDeferred(ctx)
	}
	if err != nil {
		return err
	}
	d.meter.comeBack(time.Now())
	d.found.lost = time.Since(lost)
	d.Say("The relay went on by itself: all of it was sent, in order, before what is new.")
	return wait(ctx, d.length.after)
}

// dropSlot ends the relay's session and drops its slot, before the relay takes it again.
func (d *demo) dropSlot(ctx context.Context) error {
	return pgserver.OnConn(ctx, d.db, func(conn *pgx.Conn) error {
		for began := time.Now(); time.Since(began) < patience; {
			_, err := conn.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`, slot)
			if err == nil {
				_, err = conn.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, slot)
			}
			if err == nil {
				return nil
			}
			if err := wait(ctx, 5*time.Millisecond); err != nil {
				return err
			}
		}
		return fmt.Errorf("drop slot %q: the relay took it again each time", slot)
	})
}
