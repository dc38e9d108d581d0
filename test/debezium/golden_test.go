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

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/test/debezium/cases"
	"github.com/cdc-relay/cdc-relay/test/debezium/stand"
)

// The relay makes of every row the record that Debezium has made of it.
func TestSameAsDebezium(t *testing.T) {
	kafka := launchKafka(t)
	for _, g := range cases.All() {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			golden, err := cases.Read("testdata", g.Name)
			if err != nil {
				t.Fatal(err)
			}
			if g.Stops != "" {
				stops(t, &g, kafka)
				return
			}
			got := relayed(t, &g, kafka, golden)
			for _, d := range g.Differences(golden.Records, got) {
				t.Error(d)
			}
		})
	}
}

func launchKafka(t *testing.T) *devenv.Kafka {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stand.Bound)
	defer cancel()
	k, err := devenv.StartKafka(ctx, devenv.KafkaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// relayed are the records that the relay makes of the rows of a group.
func relayed(t *testing.T, g *cases.Group, kafka *devenv.Kafka, golden *cases.Golden) []cases.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stand.Bound)
	defer cancel()
	db, conn := stand.Database(t, g)
	var to stand.Destination
	sink := ""
	if g.Rabbit {
		q := stand.NewQueue(t, g)
		to, sink = q, fmt.Sprintf("rabbitmq: {url: %q}", q.URL)
	} else {
		topics := topicsOf(golden)
		createTopics(t, kafka, topics)
		to = &stand.Topics{Group: g, Kafka: kafka, Only: topics, Begin: time.Now()}
		sink = fmt.Sprintf("kafka: {brokers: [%q]}", strings.Join(kafka.Brokers(), ","))
	}
	relay := devenv.StartRelay(t, devenv.BuildRelay(t), config(g, db, sink))
	if err := relay.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	statements, end := g.Statements()
	stand.Exec(t, conn, statements)
	records, err := to.Records(ctx, end, func() error { return ended(relay) })
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// config is a configuration with the options of a group as they are.
func config(g *cases.Group, db, sink string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "source: {url: %q, slot: %s, tables: [%s], backfill: false}\n", db, slot(g), strings.Join(g.TableNames(), ", "))
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

func topicsOf(golden *cases.Golden) []string {
	topics := []string{}
	for _, r := range golden.Records {
		if !slices.Contains(topics, r.Topic) {
			topics = append(topics, r.Topic)
		}
	}
	return topics
}

// createTopics makes topics, some at a time: one after the other takes longer than all the rest.
func createTopics(t *testing.T, kafka *devenv.Kafka, topics []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stand.Bound)
	defer cancel()
	var all sync.WaitGroup
	for part := range slices.Chunk(topics, max(1, (len(topics)+7)/8)) {
		all.Go(func() {
			for _, topic := range part {
				if err := kafka.CreateTopic(ctx, topic, stand.Partitions, 1, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// stops has the relay meet a row for which Debezium stops for good: it is a dead letter, or the relay says at once that it cannot
// take such a table.
func stops(t *testing.T, g *cases.Group, kafka *devenv.Kafka) {
	ctx, cancel := context.WithTimeout(t.Context(), stand.Bound)
	defer cancel()
	db, conn := stand.Database(t, g)
	createTopics(t, kafka, []string{"outbox.event." + g.Route("row"), "outbox.event." + g.Route("end")})
	relay := devenv.StartRelay(t, devenv.BuildRelay(t), config(g, db, fmt.Sprintf("kafka: {brokers: [%q]}", strings.Join(kafka.Brokers(), ","))))
	if g.Refused != "" {
		if err := relay.WaitLog(ctx, g.Refused); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := relay.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	statements, end := g.Statements()
	if g.GoesOn {
		stand.Exec(t, conn, statements)
		topics := &stand.Topics{Group: g, Kafka: kafka, Only: []string{"outbox.event." + g.Route("end")}, Begin: time.Now()}
		if _, err := topics.Records(ctx, end, func() error { return ended(relay) }); err != nil {
			t.Fatal(err)
		}
		return
	}
	stand.Exec(t, conn, statements[:1])
	err := stand.Await(ctx, func() error { return ended(relay) }, func() (bool, error) {
		letters, err := devenv.ReadSiding(ctx, db, slot(g))
		return len(letters) == 1 && letters[0].State == devenv.Open, err
	})
	if err != nil {
		t.Fatalf("wait for a dead letter: %v", err)
	}
	if records, err := kafka.Records(ctx, "outbox.event."+g.Route("row")); err != nil || len(records) > 0 {
		t.Errorf("the row is sent, too: %+v, %v", records, err)
	}
}

func ended(relay *devenv.Relay) error {
	if !relay.Running() {
		return errors.New("the relay has ended")
	}
	return nil
}

func slot(g *cases.Group) string { return "golden_" + strings.ReplaceAll(g.Name, "-", "_") }
