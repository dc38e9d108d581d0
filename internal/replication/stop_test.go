package replication

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
)

// A clean stop repeats nothing and misses nothing, while the outbox and other tables are being
// written.
func TestCleanStopsUnderLoad(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE other (t text)`)
	first := b.run() // before the writer: its table has no rows yet
	first.waitPhase(survey.Streaming)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	written := make(chan int, 1)
	writer := b.connect()
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			sql := fmt.Sprintf(`BEGIN; INSERT INTO outbox VALUES ('%d', '{}'); INSERT INTO other VALUES (repeat('x', 300)); COMMIT; INSERT INTO other VALUES ('')`, n)
			if _, err := writer.Exec(context.Background(), sql); err != nil {
				t.Error(err)
				break
			}
		}
		written <- n
	}()
	var got []string
	r := first
	for round := range 4 {
		line := b.current()
		await.Until(t, "some events", func() bool { return len(line.Seen()) > 20 })
		if round == 3 {
			stop()
		}
		r.endClean()
		got = append(got, line.Seen()...)
		if round < 3 {
			r = b.run()
			await.Until(t, "a new line", func() bool { return b.current() != nil })
		}
	}
	total := <-written
	last := b.run()
	if n := len(got); n < total {
		last.waitSeen(fmt.Sprint(total - 1))
	} else {
		last.waitPhase(survey.Streaming)
	}
	last.endClean()
	got = append(got, b.current().Seen()...)
	for i := range max(total, len(got)) {
		if i >= len(got) || got[i] != fmt.Sprint(i) {
			t.Fatalf("event %d is %q of %d, %d were written", i, got[min(i, len(got)-1)], len(got), total)
		}
	}
}

// A stop inside a transaction waits for its end for half the grace, and leaves it whole to the next
// start.
func TestStopInsideATransaction(t *testing.T) {
	b := shared(t)
	b.cfg.Grace = 2 * time.Second
	r := b.settledRun("a")
	line := b.current()
	defer line.BlockAfter(3)()
	b.exec(`INSERT INTO outbox SELECT 'n' || n, to_jsonb(repeat('x', 1000)) FROM generate_series(1, 5000) n`)
	r.waitSeen("n4") // which waits for room: it is not admitted
	r.endClean()     // everything that was read is settled; the log says that it stopped inside
	if said := b.logs.FilterMessageSnippet("inside a transaction").All(); len(said) != 1 || said[0].ContextMap()["events"] != int64(3) {
		t.Errorf("log: %v", said)
	}
	next := b.run()
	next.waitSeen("n1", "n5000")
	next.endClean()
	if n := len(b.current().Seen()); n != 5000 {
		t.Errorf("%d events after the stop", n)
	}
}
