package debezium

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/test/debezium/cases"
	"github.com/cdc-relay/cdc-relay/test/debezium/stand"
)

// first are the groups of the quick run: of both profiles and both brokers, one of each way in
// which a record is made.
var first = []string{
	"partition", "placements-mixed", "tombstone-schemas", "own-types", "defaults-numbers", "route-groups", "router-types", "stops-missing-column",
	"server-headers", "rabbit-json",
}

// others are all groups that the quick run leaves out.
func others() []cases.Group {
	return slices.DeleteFunc(cases.All(), func(g cases.Group) bool { return slices.Contains(first, g.Name) })
}

// The relay makes of every row the record that Debezium has made of it.
func TestSameAsDebezium(t *testing.T) {
	groups := slices.DeleteFunc(cases.All(), func(g cases.Group) bool { return !slices.Contains(first, g.Name) })
	if len(groups) != len(first) {
		t.Fatalf("%d of %d groups are there", len(groups), len(first))
	}
	sameAsDebezium(t, groups)
}

func sameAsDebezium(t *testing.T, groups []cases.Group) {
	t.Helper()
	c := &comparison{t: t, kafka: servers.SharedKafka(t), databases: stand.Databases{T: t}, records: map[string]int64{}}
	t.Run("group", func(t *testing.T) {
		for some := range slices.Chunk(groups, 8) {
			topics := sync.OnceValue(func() error { return c.createTopics(some) })
			for _, g := range some {
				t.Run(g.Name, func(t *testing.T) {
					t.Parallel()
					await.Must(t, topics())
					c.compare(t, &g)
				})
			}
		}
	})
	if !t.Failed() { // what was not read was not counted
		c.nothingElse()
	}
}

// comparison is one run of some groups: their topics on the shared Kafka, and how many records of
// each were compared.
type comparison struct {
	t         *testing.T
	kafka     *kafkaserver.Kafka
	databases stand.Databases
	mu        sync.Mutex
	records   map[string]int64 // by topic
}

func (c *comparison) add(records []cases.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range records {
		c.records[r.Topic]++
	}
}

// compare has the relay make the records of a group, and compares them with Debezium's.
func (c *comparison) compare(t *testing.T, g *cases.Group) {
	golden, err := cases.Read("testdata", g.Name)
	await.Must(t, err)
	if g.Stops != "" {
		c.add(c.stops(t, g))
		return
	}
	got, dead := c.relayed(t, g, golden)
	for _, d := range slices.Concat(g.Differences(golden.Records, got), g.Refusals(golden.Records, got, dead)) {
		t.Error(d)
	}
	if !g.Rabbit {
		c.add(got)
	}
}

// nothingElse looks for records that no group has read: in topics of others, or behind the last one
// that was waited for.
func (c *comparison) nothingElse() {
	c.t.Helper()
	there, err := stand.EndsOfTopics(await.Context(c.t), c.kafka, slices.Collect(maps.Keys(c.records)))
	await.Must(c.t, err)
	for topic, read := range c.records {
		if there[topic] != read {
			c.t.Errorf("topic %s has %d records, of which %d were compared", topic, there[topic], read)
		}
	}
}

// topicsOf are the topics that a group's relay sends to.
func topicsOf(g *cases.Group) (topics []string, err error) {
	switch {
	case g.Rabbit:
		return nil, nil
	case g.Stops != "":
		topics = []string{"outbox.event." + g.Route("row")}
		if g.Topic != "" {
			topics = append(topics, g.Topic)
		}
		return topics, nil
	}
	golden, err := cases.Read("testdata", g.Name)
	if err != nil {
		return nil, err
	}
	for _, r := range golden.Records {
		if !slices.Contains(topics, r.Topic) {
			topics = append(topics, r.Topic)
		}
	}
	return topics, nil
}

// createTopics makes the topics of some groups. They stay until all groups are through, for
// nothingElse.
func (c *comparison) createTopics(groups []cases.Group) error {
	var all []string
	for _, g := range groups {
		topics, err := topicsOf(&g)
		if err != nil {
			return err
		}
		all = append(all, topics...)
	}
	if len(all) == 0 {
		return nil
	}
	c.mu.Lock()
	for _, topic := range all {
		c.records[topic] += 0
	}
	c.mu.Unlock()
	c.t.Cleanup(func() { await.Must(c.t, stand.DeleteTopics(context.Background(), c.kafka, all)) })
	return stand.CreateTopics(await.Context(c.t), c.kafka, all)
}

// relayed are the records that the relay makes of the rows of a group, and the ids of its
// dead letters.
func (c *comparison) relayed(t *testing.T, g *cases.Group, golden *cases.Golden) (records []cases.Record, dead []string) {
	t.Helper()
	ctx := await.Context(t)
	db, conn := c.databases.Of(t, g)
	var to stand.Destination
	var sink string
	if g.Rabbit {
		q := stand.NewQueue(t, g)
		to, sink = q, fmt.Sprintf("rabbitmq: {url: %q}", q.URL)
	} else {
		topics, err := topicsOf(g)
		await.Must(t, err)
		to = &stand.Topics{Group: g, Kafka: c.kafka, Only: topics, Begin: time.Now()}
		sink = fmt.Sprintf("kafka: {brokers: [%q]}", strings.Join(c.kafka.Brokers(), ","))
	}
	relay := runner.Start(t, runner.Build(t), config(g, db, sink))
	err := relay.WaitReady(ctx)
	if err != nil {
		t.Fatal(err)
	}
	statements, end := g.Statements()
	stand.Exec(t, conn, statements)
	if records, err = to.Records(ctx, end, func() error { return ended(relay) }); err != nil {
		t.Fatal(err)
	}
	// Each row is a record or a dead letter; the last dead letter may come behind the last record,
	// and so may a record of another partition.
	err = stand.Await(ctx, func() error { return ended(relay) }, func() (bool, error) {
		deadLetters, err := checker.ReadRetryTable(ctx, db, slot(g))
		if err != nil {
			return false, err
		}
		dead = nil
		for _, l := range deadLetters {
			dead = append(dead, l.ID)
		}
		if len(records)+len(dead) < len(golden.Records) {
			records, err = to.Now(ctx)
		}
		return len(records)+len(dead) >= len(golden.Records), err
	})
	if err != nil {
		t.Errorf("%d records and %d dead letters, Debezium has %d records: %v", len(records), len(dead), len(golden.Records), err)
	}
	return records, dead
}

// config is a configuration with the options of a group as they are.
func config(g *cases.Group, db, sink string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "source: {url: %q, slot: %s, tables: [%s]}\n", db, slot(g), strings.Join(g.TableNames(), ", "))
	fmt.Fprintf(&b, "sink:\n  %s\n  compat:\n    profile: %s\n    options:\n", sink, g.Profile)
	options := maps.Clone(g.Options)
	if options == nil {
		options = map[string]string{}
	}
	options["topic.prefix"] = cases.Prefix
	for _, name := range slices.Sorted(maps.Keys(options)) {
		fmt.Fprintf(&b, "      %s: '%s'\n", name, strings.ReplaceAll(strings.ReplaceAll(options[name], "'", "''"), "$", "$$"))
	}
	return b.String()
}

// stops has the relay meet a row for which Debezium stops for good: it is a dead letter, or the
// relay says at once that it cannot take such a table. What it sends besides is returned.
func (c *comparison) stops(t *testing.T, g *cases.Group) []cases.Record {
	ctx := await.Context(t)
	db, conn := c.databases.Of(t, g)
	topics, err := topicsOf(g)
	await.Must(t, err)
	relay := runner.Start(t, runner.Build(t), config(g, db, fmt.Sprintf("kafka: {brokers: [%q]}", strings.Join(c.kafka.Brokers(), ","))))
	if g.Refused != "" {
		if err := relay.WaitLog(ctx, g.Refused); err != nil {
			t.Fatal(err)
		}
		return nil
	}
	if err := relay.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	statements, end := g.Statements()
	if g.GoesOn {
		stand.Exec(t, conn, statements)
		to := &stand.Topics{Group: g, Kafka: c.kafka, Only: topics, Begin: time.Now()}
		records, err := to.Records(ctx, end, func() error { return ended(relay) })
		if err != nil {
			t.Fatal(err)
		}
		return records
	}
	stand.Exec(t, conn, statements[:1])
	err = stand.Await(ctx, func() error { return ended(relay) }, func() (bool, error) {
		deadLetters, err := checker.ReadRetryTable(ctx, db, slot(g))
		return len(deadLetters) == 1 && deadLetters[0].State == checker.Open, err
	})
	if err != nil {
		t.Fatalf("wait for a dead letter: %v", err)
	}
	if records, err := c.kafka.Records(ctx, "outbox.event."+g.Route("row")); err != nil || len(records) > 0 {
		t.Errorf("the row is sent, too: %+v, %v", records, err)
	}
	return nil
}

func ended(relay *runner.Relay) error {
	if !relay.Running() {
		return errors.New("the relay has ended")
	}
	return nil
}

func slot(g *cases.Group) string { return "golden_" + strings.ReplaceAll(g.Name, "-", "_") }
