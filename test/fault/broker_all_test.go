//go:build testall

package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

func init() {
	ofOneRabbitMQ = append(ofOneRabbitMQ, ofOne[*rabbitserver.Rabbit]{"MemoryAlarm", memoryAlarm})
}

// memoryAlarm: while the broker blocks its publishers the relay waits, and is not ready; nothing is
// sent a second time. TestBlockedPastTheConfirmTimeout of internal/sink/rabbit blocks for longer
// than the timeout.
func memoryAlarm(t *testing.T, rmq *rabbitserver.Rabbit) {
	s := stand.New(t, stand.OnRabbitMQ(rmq))
	r := s.Start()
	stop := s.Load(200)
	s.More(100)
	s.Must(rmq.Alarm(s.Context(), true))
	s.Unready(r, "blocked")
	s.Write(300)
	s.Unready(r, "blocked")
	s.Must(rmq.Alarm(s.Context(), false))
	s.Ready(r)
	s.Fresh(100)
	stop()
	s.Check(0)
}
