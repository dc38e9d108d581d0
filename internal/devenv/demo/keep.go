// `-keep`: the demo stays up after the verdict, to explore.

package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// keepOpen leaves everything running until ctx ends, prints where it is, and then every event that
// arrives.
func (s *stage) keepOpen(ctx context.Context) {
	c := &s.cast
	say := func(format string, args ...any) { fmt.Fprintf(s.stdout, "  "+format+"\n", args...) }
	say("%s", s.colours.Bold("Everything still runs (KEEP=1). Ctrl-C stops it."))
	say("")
	say("PostgreSQL    %s", c.db)
	say("%-13s %s", c.broker.words().name, c.broker.addr())
	say("relay         %s/api/v1/status, /metrics, /readyz", c.relay.Admin())
	say("its config    %s", c.relay.ConfigPath())
	say("its commands  CDC_RELAY_ADMIN__LISTEN=%s %s status -c %s", strings.TrimPrefix(c.relay.Admin(), "http://"), c.binary, c.relay.ConfigPath())
	say("")
	say("Commit an event, and watch it arrive here:")
	say("")
	say("  psql '%s' \\", c.db)
	say("    -c \"%s\"", tryInsert)
	say("")
	seen := len(c.broker.consumer().Deliveries())
	relayRuns := true
	for every(ctx, 20*time.Millisecond) {
		for _, d := range c.broker.consumer().DeliveriesFrom(seen) {
			seen++
			say("%s  %s  id %s", time.Unix(0, d.At).Format("15:04:05.000"), s.colours.Green(d.Aggregate+" "+d.Key), d.ID)
		}
		if relayRuns && !c.relay.Running() {
			relayRuns = false
			say("%s Its last lines:\n%s", s.colours.Red("cdc-relay has ended."), c.lastLines())
		}
	}
}

const tryInsert = "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)\n" +
	"          VALUES (gen_random_uuid(), 'order', '42', 'placed', '{}')"
