//go:build nightly

package debezium

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// Debezium and the relay side by side on one outbox, each with a slot of its own, under load:
// compare finds no difference between what the two send, by the configuration that import has made.
func TestSideBySide(t *testing.T) {
	for _, broker := range []string{"rabbitmq", "kafka"} {
		t.Run(broker, func(t *testing.T) {
			s := newStage(t, broker)
			debezium := s.debezium("")
			s.imports(debezium)
			theirs, ours := "outbox.events", "shadow"
			if broker == "kafka" {
				theirs, ours = s.source["transforms.outbox.route.topic.replacement"], servers.SharedKafka(t).Topic(t, 3)
			} else {
				s.exchange(ours)
			}
			shadow := strings.NewReplacer("  create: false", "  #", " "+theirs+" ", " "+ours+" ", s.slot, s.slot+"_shadow").Replace(s.config)
			if strings.Count(shadow, ours) == 0 {
				t.Fatalf("the configuration does not name %s:\n%s", theirs, shadow)
			}
			relay := runner.Start(t, runner.Build(t), shadow)
			must(t, relay.WaitReady(s.within()))
			s.writes()
			res, err := runner.RunCommand(s.within(), runner.Build(t), shadow, "compare", "debezium",
				"--theirs", theirs, "--ours", ours, "--count", "2000", "--for", "10m", "--lag", "20s")
			must(t, err)
			if res.Code != 0 || !strings.Contains(res.Stdout, "theirs") {
				t.Errorf("exit %d:\n%s%s", res.Code, res.Stdout, res.Stderr)
			}
			t.Log(res.Stdout)
			s.finish(-1)
		})
	}
}

// exchange makes one in the stage's virtual host.
func (s *stage) exchange(name string) {
	s.t.Helper()
	conn, err := amqp.Dial(s.sink["debezium.sink.rabbitmq.connection.uri"])
	must(s.t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must(s.t, err)
	must(s.t, ch.ExchangeDeclare(name, "topic", true, false, false, false, nil))
	must(s.t, ch.Close())
}
