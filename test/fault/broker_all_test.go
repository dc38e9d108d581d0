//go:build testall

package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

func init() {
	ofOneRabbitMQ = append(ofOneRabbitMQ,
		// A broker that stops in order forgets nothing.
		ofOne[*rabbitserver.Rabbit]{"RestartedUnderLoad", func(t *testing.T, rmq *rabbitserver.Rabbit) {
			goesUnderLoad(t, stand.OnRabbitMQ(rmq), func(s stand.Server) error { return s.Stop(t.Context()) }, budget, "commit", "none")
		}},
		ofOne[*rabbitserver.Rabbit]{"MemoryAlarm", memoryAlarm})
}

// memoryAlarm: while the broker blocks its publishers, for longer than confirm_timeout, the relay
// waits; nothing is sent a second time.
func memoryAlarm(t *testing.T, rmq *rabbitserver.Rabbit) {
	s := stand.New(t, stand.OnRabbitMQ(rmq))
	s.Delivery = "confirm_timeout: 10s" // a busy broker may take half of that
	r := s.Start()
	stop := s.Load(200)
	s.More(100)
	s.Must(rmq.Alarm(s.Context(), true))
	s.Unready(r, "blocked")
	s.WriteAt(300, 25) // takes longer than confirm_timeout
	s.Unready(r, "blocked")
	s.Must(rmq.Alarm(s.Context(), false))
	s.Ready(r)
	s.More(100)
	stop()
	s.Check(0)
}
