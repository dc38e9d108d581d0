//go:build nightly

package fault

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// 400 dead letters have a key of 900 KB each, and the relay has the memory of a container. A reader
// asks for all of them, and an operator discards them: the relay lives, and the list has each.
func TestOperatorsAskForLongKeys(t *testing.T) {
	stand.Parallel(t)
	const memory, all, size = 256 << 20, 400, 900_000
	group, err := processes.LimitMemory(fmt.Sprint("cdc-relay-test-operators-", os.Getpid()), memory)
	if err != nil {
		t.Fatalf("this test limits the memory of a relay, so it must run as root where control groups may be made (a container must be privileged): %v", err)
	}
	t.Cleanup(func() {
		if err := group.Remove(); err != nil {
			t.Error(err)
		}
	})
	s := stand.Bare(t, servers.SharedPostgres(t), stand.SharedRabbitMQ(t))
	s.SQL(`CREATE TABLE outbox (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)`)
	s.Env = append(s.Env, "GOMEMLIMIT=200MiB") // as in deploy/
	r := s.Start()
	s.Must(group.Add(r.Pid()))
	// a type has 255 bytes at most
	s.SQL(`INSERT INTO outbox VALUES ('e0', 'order', 'k0', repeat('x', 300), '{}')`)
	s.AwaitRows(checker.Open, 1)
	s.SQL(`INSERT INTO cdc_relay.dead_letter SELECT (jsonb_populate_record(d, jsonb_build_object('n', nextval('cdc_relay.row_number'), 'idx', d.idx + i))).*
		FROM cdc_relay.dead_letter d, generate_series(1, $1::int - 1) i`, all)
	s.SQL(`UPDATE cdc_relay.dead_letter SET key = convert_to(repeat('0123456789', $1::int / 10), 'UTF8')`, size)

	for range 5 {
		seen := 0
		for next := ""; ; {
			_, body, err := r.Get(s.Context(), "/api/v1/dead-letters?limit=1000&cursor="+next)
			s.Must(err)
			var page struct {
				Items []struct {
					N   int64
					Cut []string
				}
				Next string
			}
			s.Must(json.Unmarshal([]byte(body), &page))
			for _, item := range page.Items {
				if fmt.Sprint(item.Cut) != "[key]" {
					t.Fatalf("dead letter %d: cut is %v", item.N, item.Cut)
				}
			}
			if seen, next = seen+len(page.Items), page.Next; next == "" {
				break
			}
		}
		if seen != all {
			t.Errorf("the list has %d dead letters, want %d", seen, all)
		}
	}
	operated(s, "dead-letters", "discard", "--all", "--reason", "a test", "--wait", "10m")
	peak, err := r.PeakRSS()
	if s.Must(err); peak > memory/2 {
		t.Errorf("the relay has had %d MiB", peak>>20)
	}
	t.Logf("peak RSS: %d MiB", peak>>20)
	stopped(s, r, 0)
}
