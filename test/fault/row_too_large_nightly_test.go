//go:build nightly

package fault

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A row of 500 MB reaches a relay that may have 256 MB, as in a container. Without
// source.max_event_bytes the kernel kills it, at each start, until it has the memory: then the row
// is sent, and a dead letter with all of it, since it is too large for the broker, and nothing is
// lost. With the limit the row is a dead letter with its id and key, the others are delivered, and
// the relay's memory stays what it is for small rows. A relay that has the memory replays the row:
// it is read, and the broker is asked. One that has not is killed by the replay, once.
func TestRowLargerThanTheMemory(t *testing.T) {
	stand.Parallel(t)
	const size, memory, more, calm = 500_000_000, 256 << 20, 3 << 30, 128 << 20
	limit := func(name string, bytes int64) *processes.MemoryLimit {
		group, err := processes.LimitMemory(fmt.Sprint("cdc-relay-test-", name, os.Getpid()), bytes)
		if err != nil {
			t.Fatalf("this test limits the memory of a relay, so it must run as root where control groups may be made (a container must be privileged): %v", err)
		}
		t.Cleanup(func() {
			if err := group.Remove(); err != nil {
				t.Error(err)
			}
		})
		return group
	}
	group, roomy := limit("", memory), limit("more-", more)
	s := stand.Bare(t, servers.SharedPostgres(t), stand.SharedRabbitMQ(t))
	s.SQL(`CREATE TABLE outbox (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)`)
	small := func(from, to int) (ids []string) {
		s.SQL(`INSERT INTO outbox SELECT 'e' || i, 'order', 'k' || i % 5, 'placed', format('{"key": "k%s", "seq": %s}', i % 5, i / 5 + 1) FROM generate_series($1::int, $2::int) i`, from, to)
		for i := from; i <= to; i++ {
			ids = append(ids, fmt.Sprint("e", i))
		}
		return ids
	}
	launch := func(within *processes.MemoryLimit) *runner.Relay {
		r := s.Launch()
		s.Must(within.Add(r.Pid()))
		s.Ready(r)
		return r
	}

	r := s.Start()
	s.Must(group.Add(r.Pid()))
	ids := small(0, 99)
	s.Must(s.Consumer.WaitIDs(s.Context(), ids))
	s.SQL(`INSERT INTO outbox VALUES ('large', 'order', 'k1', 'placed', repeat('0123456789abcdef', $1::int / 16))`, size)
	ids = append(ids, small(100, 199)...)
	if code, err := r.Exit(s.Context()); err != nil || code != -1 {
		t.Fatalf("the relay without source.max_event_bytes ends with %d, %v; want a kill", code, err)
	}
	s.Gone()

	r = launch(roomy)
	s.AwaitRows(checker.Open, 1)
	s.Must(s.Consumer.WaitIDs(s.Context(), ids))
	deadOf(s, r, "too_large", "large")
	var stored int64
	s.Query([]any{&stored}, `SELECT octet_length(payload) FROM cdc_relay.dead_letter`)
	if stored != size {
		t.Errorf("the dead letter has %d bytes", stored)
	}
	peak, err := r.PeakRSS()
	s.Must(err)
	t.Logf("peak RSS without the limit: %d MiB", peak>>20)
	operated(s, "dead-letters", "discard", number(s, "large"), "--wait", "10m")
	stopped(s, r, 0)

	s.SQL(`INSERT INTO outbox SELECT 'second', aggregatetype, aggregateid, type, payload FROM outbox WHERE id = 'large'`)
	ids = append(ids, small(200, 299)...)
	s.Source = "max_event_bytes: 16MiB"
	r = launch(group)
	s.AwaitRows(checker.Open, 1)
	s.Must(s.Consumer.WaitIDs(s.Context(), ids))
	deadOf(s, r, "row_too_large", "second")
	var key string
	var bytes int64
	s.Query([]any{&key, &bytes}, `SELECT convert_from(key, 'UTF8'), bytes FROM cdc_relay.dead_letter WHERE left_out = 'public.outbox'`)
	if key != "k1" || bytes < size || bytes > size+100 {
		t.Errorf("the dead letter is of key %q and has %d bytes", key, bytes)
	}
	peak, err = r.PeakRSS()
	if s.Must(err); peak > calm {
		t.Errorf("the relay has had %d MiB, want at most %d", peak>>20, calm>>20)
	}
	t.Logf("peak RSS with the limit: %d MiB", peak>>20)

	operated(s, "dead-letters", "replay", number(s, "second"), "--wait", "0")
	if code, err := r.Exit(s.Context()); err != nil || code != -1 {
		t.Fatalf("the relay that replays the row ends with %d, %v; want a kill", code, err)
	}
	s.Gone()
	r = launch(group)
	var answer string
	await.Until(t, "the next relay answers the request", func() bool {
		s.Query([]any{&answer}, `SELECT coalesce((SELECT result FROM cdc_relay.request WHERE kind = 'replay' AND state = 'failed'), '')`)
		return answer != ""
	})
	if !strings.Contains(answer, "give it about 3 times that in memory") {
		t.Errorf("the replay ended with %q", answer)
	}
	ids = append(ids, small(300, 399)...)
	s.Must(s.Consumer.WaitIDs(s.Context(), ids))
	stopped(s, r, 0)

	r = s.Start()
	result := s.Command("dead-letters", "replay", number(s, "second"), "--wait", "10m")
	if result.Code != 1 || !strings.Contains(result.Stdout+result.Stderr, "too_large: the body has") {
		t.Errorf("the replay ends with %d: %s%s", result.Code, result.Stdout, result.Stderr)
	}
	peak, err = r.PeakRSS()
	if s.Must(err); peak < size {
		t.Errorf("the relay has had %d MiB: it has not read the row", peak>>20)
	}
	t.Logf("peak RSS of a replay: %d MiB", peak>>20)
	stopped(s, r, 0)
}
