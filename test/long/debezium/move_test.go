//go:build nightly

package debezium

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

// A running Debezium Server is moved to cdc-relay under load: Debezium is stopped, in good order or killed, and the relay goes on with
// its slot and publication. Consumers miss nothing, and get no more twice than check has said.
func TestMove(t *testing.T) {
	for _, broker := range []string{"rabbitmq", "kafka"} {
		for _, how := range []string{"stopped", "killed"} {
			t.Run(broker+", "+how, func(t *testing.T) {
				s := newStage(t, broker)
				debezium := s.debezium("")
				s.writes()
				s.imports(debezium)
				s.more(2000)
				must(t, devenv.WaitOutgrown(s.within(), s.db, s.slot))
				if how == "killed" {
					must(t, debezium.Kill())
				} else {
					must(t, debezium.Stop(s.within()))
				}
				most := s.twice()
				relay := s.relay()
				s.more(2000)
				verdict := s.finish(most)
				t.Logf("%s: at most %d events were to arrive twice, %d did", how, most, verdict.Duplicates)
				if code := relay.Stop(t); code != 0 {
					t.Errorf("the relay exits %d", code)
				}
			})
		}
	}
}
