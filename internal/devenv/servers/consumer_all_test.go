//go:build testall

package servers

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
)

// One that returned early would hide late repeats, and every bound on them would pass. Here the
// consumer begins when all is in the queue.
func TestDrainWaitsForAllThatIsInTheQueue(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	url := SharedRabbitMQ(t).VHost(t)
	c, err := consumers.StartConsumer(ctx, consumers.ConsumerOptions{URL: url}) // makes the queue
	await.Must(t, err)
	c.Close()
	rows := make([]checker.Row, 5000)
	for i := range rows {
		rows[i] = checker.Row{ID: load.NewUUID(), Key: fmt.Sprintf("k%d", i%10), Seq: int64(i/10 + 1)}
	}
	publish(t, url, inOrder, rows...)
	publish(t, url, inOrder, rows[10:13]...)
	c, err = consumers.StartConsumer(ctx, consumers.ConsumerOptions{URL: url})
	await.Must(t, err)
	defer c.Close()
	await.Must(t, c.Drain(ctx))
	if distinct, copies := c.Count(); distinct != 5000 || copies != 3 {
		t.Fatalf("%d ids and %d duplicates after the drain", distinct, copies)
	}
	if v := checker.Check(checker.History{Committed: rows, Deliveries: c.Deliveries(), MaxDuplicates: 3}); v.Err() != nil {
		t.Fatal(v)
	}
}
