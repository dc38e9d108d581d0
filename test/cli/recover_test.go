package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// place inserts a row of a key, with a number that says where it belongs.
func (r *rig) place(key string, n int) {
	r.t.Helper()
	r.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', $1, 'created', jsonb_build_object('n', $2::int))`, key, n)
}

// sentOf is the numbers that a relay with stdout has sent of a key, in order, and their positions.
func sentOf(t *testing.T, relay *runner.Relay, key string) (numbers []int, positions []string) {
	t.Helper()
	for line := range strings.Lines(relay.Stdout()) {
		var ev struct {
			Key      string
			Position string
			Payload  struct{ N int }
		}
		if json.Unmarshal([]byte(line), &ev) == nil && ev.Key == key {
			numbers, positions = append(numbers, ev.Payload.N), append(positions, ev.Position)
		}
	}
	return numbers, positions
}

func wantSent(t *testing.T, relay *runner.Relay, key string, want ...int) {
	t.Helper()
	eventually(t, func() string {
		if got, _ := sentOf(t, relay, key); !slices.Equal(got, want) {
			return fmt.Sprintf("of key %s it has sent %v, want %v", key, got, want)
		}
		return ""
	})
	_, positions := sentOf(t, relay, key)
	if !slices.IsSorted(positions) || len(slices.Compact(slices.Clone(positions))) != len(positions) {
		t.Errorf("positions do not rise: %v", positions)
	}
}

// dropSlot drops the slot, as soon as nobody holds it.
func (r *rig) dropSlot() {
	r.t.Helper()
	r.released()
	r.exec(`SELECT pg_drop_replication_slot($1)`, r.slot)
}

// A slot is dropped while no relay runs. What was committed since is copied from the table, and
// comes in order before what is committed after. What is refused: TestRecoverRefuses of
// internal/replication.
func TestRecover(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	relay := r.start()
	r.place("a", 1)
	wantSent(t, relay, "a", 1)
	r.refused(2, "recover", "is in use by", "stop every relay")
	ended(t, relay)
	r.refused(2, "recover --unordered", "in order, and no accepted gap is open")
	r.place("a", 2)
	r.place("b", 1)
	r.place("a", 3)
	r.dropSlot()
	r.refused(2, "recover", "order unknown", "--order-by")
	r.refused(3, "run", "no longer exists")
	if out := r.ok("recover", "--dry-run", "--order-by", "created_at"); !strings.Contains(out, "would be copied") {
		t.Errorf("a dry run says %q", out)
	}
	if n := ask[int](r, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = '`+r.slot+`'`); n != 0 {
		t.Error("a dry run has made a slot")
	}

	out := r.ok("recover", "--order-by", "created_at", "--reason", "because", "--json")
	var report struct {
		Recovered int
		Order     string
		FromXID   *string  `json:"from_xid"`
		Lost      []string `json:"cannot_be_recovered"`
	}
	must(t, json.Unmarshal([]byte(out), &report))
	if report.Recovered < 3 || report.Recovered > 4 || report.Order != `column "created_at"` || len(report.Lost) != 1 {
		t.Errorf("it reports %s", out)
	}
	if why := ask[string](r, `SELECT why || ': ' || who FROM cdc_relay.audit WHERE action = 'recover'`); why != "because: "+ask[string](r, `SELECT session_user::text`) {
		t.Errorf("the audit says %q", why)
	}
	r.place("a", 4)
	relay = r.start()
	want := []int{2, 3, 4}
	if report.Recovered == 4 { // the first one was not noted as settled
		want = slices.Insert(want, 0, 1)
	}
	wantSent(t, relay, "a", want...)
	wantSent(t, relay, "b", 1)
	becomes(r, 0, `SELECT count(*) FROM cdc_relay.retry`)
	r.place("a", 5)
	wantSent(t, relay, "a", append(want, 5)...)
	ended(t, relay)
	r.released()
	r.refused(2, "recover --unordered", "no accepted gap is open")
}
