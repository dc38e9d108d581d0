package kafka

import (
	"fmt"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// withProfile is a configuration by these options; the extra column of its events is part.
func withProfile(t testing.TB, options map[string]string) Config {
	t.Helper()
	copies, err := newPlain(&RecordConfig{})
	must(t, err)
	encoder, topic := connectRecords(t, options, copies)
	return Config{Brokers: []string{"1:9092"}, RecordConfig: RecordConfig{Encoder: encoder, Topic: topic}}
}

// A key has one lane, whatever record a profile makes of its rows, and if it makes none: what is
// behind a row that waits stays in the lane, and nowhere else.
func TestProfileLaneIsTheKeys(t *testing.T) {
	for name, key := range map[string]string{"text": "storage.StringConverter", "JSON": "json.JsonConverter"} {
		s, err := New(withProfile(t, map[string]string{"key.converter": "org.apache.kafka.connect." + key}))
		must(t, err)
		teach(s, map[string]int{"outbox.event.order": 12})
		lanes := map[int]bool{}
		for n := range 40 {
			row := func(part string) *event.Event {
				ev := outboxRow([]byte("id"), []byte("order"), fmt.Append(nil, "key-", n), []byte("p"), nil)
				if part != "" {
					ev.Columns[0] = []byte(part)
				}
				return ev
			}
			place := func(ev *event.Event) int {
				p, ok := s.Place(ev)
				if !ok {
					t.Fatal("no place")
				}
				return p.Lane
			}
			altered, shapeless := row(""), row("")
			altered.Shape = shapesOfRows(true)
			shapeless.Shape = nil // deferred without a profile
			want := place(row(""))
			lanes[want] = true
			for what, ev := range map[string]*event.Event{
				"names a partition": row("7"), "names a negative one": row("-1"), "is of the table before it was altered": altered,
				"cannot be rendered": shapeless,
			} {
				if got := place(ev); got != want {
					t.Errorf("%s, key %d: a row that %s is in lane %d, others in %d", name, n, what, got, want)
				}
			}
		}
		if len(lanes) < 8 {
			t.Errorf("%s: 40 keys are in %d lanes of 12", name, len(lanes))
		}
	}
}

// A partition that was added a moment ago is asked for before a row that names it is refused; one
// that there is not is refused after that. A row that names none costs no question.
func TestProfilePartitionThatIsNew(t *testing.T) {
	inMemory(t, 1, 2, withProfile(t, map[string]string{"route.topic.replacement": "events"}), func(m *memory, r *running) {
		to := func(part string) *event.Event {
			n := lastPosition.Add(1)
			ev := outboxRow(fmt.Appendf(nil, "id-%d", n), []byte("order"), []byte("k"), []byte("p"), []byte(part))
			ev.Position.Commit, ev.Ordered, ev.Hash = pglogrepl.LSN(n<<8), true, 7
			return ev
		}
		wantConfirmed(t, r.send(to("0"), to("1")))
		asked := func() int {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.metadata
		}
		before := asked()
		wantConfirmed(t, r.send(to("0"), to("1")))
		if now := asked(); now != before {
			t.Errorf("%d questions about partitions that are known", now-before)
		}
		m.change(func() { m.grow("events", 4) })
		wantConfirmed(t, r.send(to("0"), to("3")))
		outcomes := r.send(to("3"), to("4"))
		wantConfirmed(t, outcomes, 1)
		wantRejected(t, outcomes[1], sink.Permanent, sink.Invalid)
	})
}
