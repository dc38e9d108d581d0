// `-keep`: the demo stays up after the verdict, to explore.

package main

import (
	"context"
	"fmt"
	"time"
)

// keepOpen leaves everything running until ctx ends, prints where it is, and then every event that
// arrives.
func (d *demo) keepOpen(ctx context.Context) {
	say := func(format string, args ...any) { d.Print("  " + fmt.Sprintf(format, args...)) }
	say("Everything still runs (KEEP=1). Ctrl-C stops it.")
	say("")
	say("PostgreSQL    %s", d.db)
	say("%-13s %s", d.broker.words().name, d.broker.addr())
	say("relay         %s/metrics, /readyz", d.relay.Admin())
	say("its console   %s/console/", d.relay.Admin())
	say("  with token  %s", d.token)
	say("its API       curl --unix-socket %s http://relay/api/v1/status", d.relay.Socket())
	say("its config    %s", d.relay.ConfigPath())
	say("its commands  CDC_RELAY_ADMIN__SOCKET=%s %s status -c %s", d.relay.Socket(), d.binary, d.relay.ConfigPath())
	say("")
	say("Commit an event, and watch it arrive here:")
	say("")
	say("  psql '%s' \\", d.db)
	say("    -c \"%s\"", tryInsert)
	say("")
	seen := len(d.broker.consumer().Deliveries())
	relayRuns := true
	for every(ctx, 20*time.Millisecond) {
		for _, m := range d.broker.consumer().DeliveriesFrom(seen) {
			seen++
			say("%s  %s  id %s", time.Unix(0, m.At).Format("15:04:05.000"), d.Green(m.Aggregate+" "+m.Key), m.ID)
		}
		if relayRuns && !d.relay.Running() {
			relayRuns = false
			say("%s Its last lines:\n%s", d.Red("cdc-relay has ended."), d.lastLines())
		}
	}
}

const tryInsert = "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)\n" +
	"          VALUES (gen_random_uuid(), 'order', '42', 'placed', '{}')"
