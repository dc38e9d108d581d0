//go:build nightly

package debezium

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// A running Debezium Server with plugin.name=decoderbufs, its default, is moved to cdc-relay under load, as docs/from-debezium.md has it: its
// slot cannot be read, so takeover makes the relay's beside it, and says when to stop Debezium. Consumers miss nothing, and get no more
// twice than check has said.
func TestTakeoverFromDecoderbufs(t *testing.T) {
	for broker, how := range map[string]string{"rabbitmq": "killed", "kafka": "stopped"} {
		t.Run(broker+", "+how, func(t *testing.T) {
			s := newStage(t, broker)
			s.source["plugin.name"] = "decoderbufs"
			debezium := s.debezium("")
			s.writes()
			if plugin := query[string](s, `SELECT plugin FROM pg_replication_slots WHERE slot_name = $1`, s.slot); plugin != "decoderbufs" {
				t.Fatalf("Debezium's slot is of %s", plugin)
			}
			s.imports(debezium, "--force")
			s.more(500)
			s.takesOver("Now stop ", 3)
			s.more(500) // both slots are kept meanwhile
			if how == "killed" {
				must(t, debezium.Kill())
			} else {
				must(t, debezium.Stop(s.within()))
			}
			s.takesOver("complete: slot ", 0)
			most := s.twice()
			relay := devenv.StartRelay(t, devenv.BuildRelay(t), s.config)
			must(t, relay.WaitReady(s.within()))
			s.more(1000)
			verdict := s.finish(most)
			t.Logf("%s: at most %d events were to arrive twice, %d did", how, most, verdict.Duplicates)
			if code := relay.Stop(t); code != 0 {
				t.Errorf("the relay exits %d", code)
			}
		})
	}
}

// takesOver runs takeover, again and again, until it says so; it exits with that code then.
func (s *stage) takesOver(until string, code int) {
	s.t.Helper()
	var res devenv.Result
	for ctx := s.within(); ctx.Err() == nil; pause(ctx) {
		var err error
		res, err = devenv.RunCommand(ctx, devenv.BuildRelay(s.t), s.config, "takeover", "--from-slot", s.slot, "--wait", "0")
		must(s.t, err)
		if strings.Contains(res.Stdout, until) {
			if res.Code != code {
				s.t.Errorf("takeover exits %d, want %d: %s%s", res.Code, code, res.Stdout, res.Stderr)
			}
			return
		}
	}
	s.t.Fatalf("takeover does not say %q, and exits %d: %s%s", until, res.Code, res.Stdout, res.Stderr)
}
