//go:build nightly

package debezium

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	debeziumserver "github.com/cdc-relay/cdc-relay/internal/devenv/servers/debezium"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/test/debezium/cases"
	"github.com/cdc-relay/cdc-relay/test/debezium/stand"
)

const testdata = "../../debezium/testdata"

var (
	rewrite = flag.Bool("rewrite", false, "write what Debezium has made of all rows into testdata, instead of comparing ten cases with it")
	only    = flag.String("groups", "", "groups to rewrite or to compare, with commas; none: all of them, or those of ten random cases")
	seed    = flag.Uint64("seed", 0, "the seed by which the ten cases are chosen; 0: another one each time")
)

// What Debezium makes of the rows today is what the golden records say. Ten cases are chosen by
// chance, and everything in their groups is compared.
func TestGolden(t *testing.T) {
	kafka := launchKafka(t)
	for _, g := range chosen(t) {
		t.Run(g.Name, func(t *testing.T) {
			got := capture(t, &g, kafka)
			if *rewrite {
				if err := got.Write(testdata, g.Name); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := cases.Read(testdata, g.Name)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range g.Differences(want.Records, got.Records) {
				t.Errorf("testdata has\n%s", d)
			}
		})
	}
}

func chosen(t *testing.T) []cases.Group {
	t.Helper()
	all := cases.All()
	named := map[string]bool{}
	for name := range strings.SplitSeq(*only, ",") {
		named[name] = name != ""
	}
	if *only == "" && !*rewrite {
		if *seed == 0 {
			*seed = rand.Uint64()
		}
		t.Logf("seed %d: go test ./test/long/debezium -run TestGolden -args -seed %[1]d", *seed)
		type one struct{ group, name string }
		var each []one
		for _, g := range all {
			for _, c := range g.Cases {
				each = append(each, one{g.Name, c.Name})
			}
		}
		for _, i := range rand.New(rand.NewPCG(*seed, 0)).Perm(len(each))[:10] {
			t.Logf("case %s of %s", each[i].name, each[i].group)
			named[each[i].group] = true
		}
	}
	var groups []cases.Group
	for _, g := range all {
		if named[g.Name] || *only == "" && *rewrite {
			groups = append(groups, g)
		}
	}
	return groups
}

func launchKafka(t *testing.T) *kafkaserver.Kafka {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stand.Bound)
	defer cancel()
	k, err := kafkaserver.Start(ctx, kafkaserver.Options{Settings: map[string]string{"auto.create.topics.enable": "true", "num.partitions": fmt.Sprint(stand.Partitions)}})
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

// debezium is either of the two.
type debezium interface {
	Running() bool
	Log() string
	Stop(context.Context) error
}

// capture lets Debezium make records of the rows of a group.
func capture(t *testing.T, g *cases.Group, kafka *kafkaserver.Kafka) *cases.Golden {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stand.Bound)
	defer cancel()
	golden := &cases.Golden{Debezium: debeziumserver.DebeziumVersion, Stops: g.Stops, Broker: "Kafka " + debeziumserver.ConnectVersion}
	db, conn := stand.Database(t, g)
	if err := conn.QueryRow(ctx, "SHOW server_version").Scan(&golden.Postgres); err != nil {
		t.Fatal(err)
	}
	golden.Postgres, _, _ = strings.Cut(golden.Postgres, " ")
	source, err := debeziumserver.DebeziumSource(db, g.TableNames()...)
	if err != nil {
		t.Fatal(err)
	}
	source["slot.name"] = "golden_" + strings.ReplaceAll(strings.ToLower(g.Name), "-", "_")
	quick := []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}
	server := map[string]string{}
	g.Connector(source, server)

	var to stand.Destination
	var run debezium
	if g.Rabbit {
		q := stand.NewQueue(t, g)
		golden.Broker = "RabbitMQ " + q.Version
		sink := debeziumserver.DebeziumRabbitMQ(q.URL)
		withoutFormats(sink)
		maps.Copy(sink, server)
		to, run = q, debeziumserver.StartDebezium(t, debeziumserver.DebeziumOptions{DB: db, Source: source, Sink: sink, Java: quick})
	} else {
		before, err := kafka.Topics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		topics := &stand.Topics{Group: g, Kafka: kafka, Before: append(before, ""), Begin: time.Now()}
		to = topics
		if g.Profile == cases.Connect {
			golden.Connect = debeziumserver.ConnectVersion
			run = debeziumserver.StartConnect(t, debeziumserver.ConnectOptions{DB: db, Brokers: kafka.Brokers(), Source: source, Java: quick})
		} else {
			sink := debeziumserver.DebeziumKafka(kafka.Brokers()...)
			withoutFormats(sink)
			maps.Copy(sink, server)
			for _, role := range []string{"key", "value"} {
				if slices.Contains([]string{"binary", "jsonbytearray", "clientprovided"}, g.Options["format."+role]) {
					sink["debezium.sink.kafka.producer."+role+".serializer"] = "org.apache.kafka.common.serialization.ByteArraySerializer"
				}
			}
			run = debeziumserver.StartDebezium(t, debeziumserver.DebeziumOptions{DB: db, Source: source, Sink: sink, Java: quick})
		}
	}

	statements, end := g.Statements()
	stand.Exec(t, conn, statements)
	golden.Records, err = to.Records(ctx, end, func() error { return stopped(run, g.Stops) })
	switch {
	case g.Stops != "" && errors.Is(err, errStops):
		golden.Records = nil
	case err != nil:
		t.Fatalf("%v: %s", err, excerpt(run.Log()))
	case g.Stops != "":
		t.Fatalf("Debezium goes on: %+v", golden.Records)
	}
	if err := run.Stop(context.WithoutCancel(ctx)); err != nil {
		t.Fatal(err)
	}
	// once more: what was in the producer's hands came last
	if k, ok := to.(*stand.Topics); ok && g.Stops == "" {
		if golden.Records, err = k.Now(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range golden.Records {
		golden.Records[i].Value = address.ReplaceAll(r.Value, []byte("[B@(another one in each run)"))
		for i, h := range r.Headers {
			if h.Name == cases.RunID {
				r.Headers[i].Value = cases.Bytes(`"(another one in each run)"`)
			}
		}
	}
	return golden
}

// address is what Java says of an array of bytes.
var address = regexp.MustCompile(`\[B@[0-9a-f]+`)

func withoutFormats(sink map[string]string) {
	delete(sink, "debezium.format.key")
	delete(sink, "debezium.format.value")
}

var errStops = errors.New("Debezium has stopped as expected")

// stopped says whether Debezium has given up.
func stopped(run debezium, words string) error {
	log := run.Log()
	failed := !run.Running() || strings.Contains(log, "Task is being killed and will not recover") || strings.Contains(log, "Task threw an uncaught and unrecoverable exception")
	switch {
	case failed && words != "" && strings.Contains(log, words):
		return errStops
	case failed:
		return errors.New("Debezium has stopped")
	}
	return nil
}

// excerpt are the lines of a log that tell of an error.
func excerpt(log string) string {
	var lines []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, "Exception") || strings.Contains(line, "ERROR") {
			lines = append(lines, line)
		}
	}
	if len(lines) > 12 {
		lines = lines[len(lines)-12:]
	}
	return strings.Join(lines, "")
}
