//go:build nightly

package debezium

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	debeziumserver "github.com/cdc-relay/cdc-relay/internal/devenv/servers/debezium"
)

// A running Debezium Server is moved to cdc-relay under load, as docs/from-debezium.md has it,
// right after its first start, whatever its slot's plugin is: takeover makes the publication, says
// when to stop Debezium, and copies its slot. Consumers miss nothing, and get no more twice than
// waits in the relay's slot by then.
func TestMove(t *testing.T) {
	for _, plugin := range []string{"pgoutput", "decoderbufs"} {
		for broker, how := range map[string]string{"rabbitmq": "killed", "kafka": "stopped"} {
			t.Run(plugin+" to "+broker+", "+how, func(t *testing.T) {
				s := newStage(t, broker)
				s.source["plugin.name"] = plugin
				debezium := s.debezium("")
				s.writes()
				s.takesTheSlot(debezium, how == "killed")
				most := s.twice()
				relay := s.relay()
				s.more(1000)
				verdict := s.finish(most)
				t.Logf("%s: at most %d events were to arrive twice, %d did", how, most, verdict.Duplicates)
				if code := relay.Stop(t); code != 0 {
					t.Errorf("the relay exits %d", code)
				}
			})
		}
	}
}

// takesTheSlot imports Debezium's configuration and takes the place of its slot: s.slot is the
// relay's from then on.
func (s *stage) takesTheSlot(d *debeziumserver.Debezium, kill bool) {
	s.t.Helper()
	s.imports(d)
	s.takesOver("stop that program", 3)
	s.more(500)
	if kill {
		must(s.t, d.Kill())
	} else {
		must(s.t, d.Stop(s.within()))
	}
	s.takesOver("complete: slot ", 0)
	s.slot = s.relaySlot()
}

// relaySlot is the relay's own slot.
func (s *stage) relaySlot() string { return s.source["slot.name"] + "_relay" }

// takesOver runs takeover, again and again, until it says so; it exits with that code then.
func (s *stage) takesOver(until string, code int) {
	s.t.Helper()
	var res runner.Result
	for ctx := s.within(); ctx.Err() == nil; pause(ctx) {
		var err error
		res, err = runner.RunCommand(ctx, runner.Build(s.t), s.config, "takeover", "--from-slot", s.slot)
		must(s.t, err)
		if strings.Contains(res.Stdout+res.Stderr, until) {
			if res.Code != code {
				s.t.Errorf("takeover exits %d, want %d: %s%s", res.Code, code, res.Stdout, res.Stderr)
			}
			return
		}
	}
	s.t.Fatalf("takeover does not say %q, and exits %d: %s%s", until, res.Code, res.Stdout, res.Stderr)
}
