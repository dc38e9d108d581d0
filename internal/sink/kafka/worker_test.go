package kafka

import (
	"math"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A record that is larger than any merged request is too large when it costs two connections that were just opened. One that
// had idled may end for other reasons.
func TestCutsOfFreshConnections(t *testing.T) {
	for cuts, want := range []sink.State{sink.Confirmed, sink.Confirmed, sink.Confirmed, sink.Rejected} {
		inMemory(t, 1, 1, Config{}, func(m *memory, r *running) {
			m.topics["events"].limit = 16 << 20
			wantConfirmed(t, r.send(few(1)...))
			m.change(func() { m.cuts = cuts })
			ev := few(1)[0]
			ev.Payload = make([]byte, maxRequest+1)
			if got := r.send(ev)[0]; got.State != want {
				t.Errorf("after %d cuts: %s %v", cuts, got.State, got.Fault)
			}
		})
	}
}

// A broker that wants a pause of weeks is given a minute.
func TestThrottle(t *testing.T) {
	inMemory(t, 1, 1, Config{}, func(m *memory, r *running) {
		m.change(func() { m.throttle = math.MaxInt32 })
		wantConfirmed(t, r.send(few(1)...))
		wantConfirmed(t, r.send(few(1)...)) // by the other worker
		began := time.Now()
		wantConfirmed(t, r.send(few(1)...))
		if took := time.Since(began); took < maxThrottle-time.Second || took > maxThrottle+time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
