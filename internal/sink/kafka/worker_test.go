package kafka

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// A record that is larger than any merged request is too large when it costs two connections that
// were just opened. One that had idled may end for other reasons.
func TestCutsOfFreshConnections(t *testing.T) {
	for cuts, want := range []sink.State{sink.Confirmed, sink.Confirmed, sink.Confirmed, sink.Rejected} {
		inMemory(t, 1, 1, Config{}, func(m *memory, r *running) {
			m.topics["events"].limit = 16 << 20
			wantConfirmed(t, r.send(few(1)...))
			m.change(func() { m.cuts = cuts })
			ev := few(1)[0]
			ev.Payload = make([]byte, kafkaclient.MaxRequest+1)
			if got := r.send(ev)[0]; got.State != want {
				t.Errorf("after %d cuts: %s %v", cuts, got.State, got.Fault)
			}
		})
	}
}

// Over a small quota one large request costs a long pause. While it lasts nothing is sent that
// would not be read, so nobody is taken for down. A broker that wants a pause of weeks is given an
// hour.
func TestThrottle(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		2 * time.Minute: 2 * time.Minute, math.MaxInt32 * time.Millisecond: kafkaclient.MaxThrottle,
	} {
		inMemory(t, 1, 1, Config{}, func(m *memory, r *running) {
			m.change(func() { m.throttle = int32(asked.Milliseconds()) })
			wantConfirmed(t, r.send(few(1)...))
			wantConfirmed(t, r.send(few(1)...)) // by the other worker
			began := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), 2*want)
			defer cancel()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				outcomes, err := r.try(ctx, few(1)...)
				if err != nil || outcomes[0].State != sink.Confirmed {
					t.Errorf("%v, %v", outcomes, err)
				}
			}()
			goBy(want - time.Second)
			if up, why := r.Up(); !up {
				t.Errorf("down: %s", why)
			}
			<-ended
			if took := time.Since(began); took < want-time.Second || took > want+time.Second {
				t.Errorf("asked for %s it took %s", asked, took)
			}
		})
	}
}
