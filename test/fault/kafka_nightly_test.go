//go:build nightly

package fault

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// What is nearest to RabbitMQ's memory alarm: the relay is over its quota, and the broker does not
// read from it for longer than confirm_timeout, again and again. It waits: ready, late, and with
// nothing deferred or given up.
func TestKafkaQuota(t *testing.T) {
	stand.Parallel(t)
	s := stand.New(t, stand.SharedKafka(t))
	// events: about 4 kB, which cost a pause of about 6 s
	s.Delivery = "confirm_timeout: 4s, max_in_flight: 10"
	quota := func(bytesPerSecond float64) {
		s.Must(s.Kafka.Cluster.SetProducerQuota(s.Context(), "cdc-relay/"+s.Slot, bytesPerSecond))
	}
	quota(700)
	r := s.StartWatched()
	stop := s.Load(100)
	late := func() bool {
		code, body := s.Readyz(r)
		st := status(s, r)
		if code != 200 || st.Deferred.Events > 0 || !slices.Contains([]string{"idle", "streaming", "catching up"}, st.State) {
			t.Fatalf("the relay is %s with %d deferred, /readyz is %d: %s", st.State, st.Deferred.Events, code, body)
		}
		return st.State == "catching up"
	}
	s.Until("the relay to be late", late)
	quota(0)
	s.Until("the relay to have caught up", func() bool { return !late() })
	stop()
	s.Check(0)
	if n := s.Metric(r, "outbox_sink_reconnects_total"); n != 0 {
		t.Errorf("%v connections were given up", n)
	}
}

// A Kafka of one node is killed, and finds its producers' numbers in its log.
func TestKafkaBrokerKilledUnderLoad(t *testing.T) {
	stand.Parallel(t)
	server := stand.OnKafka(stand.OwnKafka(t, kafkaserver.Options{}), stand.Topics{})
	goesUnderLoad(t, server, stand.Server.Kill, budget, "pipelined", "none")
}
