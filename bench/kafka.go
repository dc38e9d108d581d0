// Kafka: the topic of a run, and the bare reader of a slot.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	kafkago "github.com/segmentio/kafka-go"
	"golang.org/x/sys/unix"

	"github.com/cdc-relay/cdc-relay/inbox"
	inboxkafka "github.com/cdc-relay/cdc-relay/inbox/kafka"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	debeziumserver "github.com/cdc-relay/cdc-relay/internal/devenv/servers/debezium"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// kafka is a cluster of one node.
type kafka struct {
	cluster *kafkaserver.Kafka
	topics  int // made so far
}

// openKafka starts a node with the threads and the compilers that Kafka has of itself: those of the
// tests' nodes are there sooner and slower afterwards.
func openKafka(ctx context.Context) (broker, error) {
	cluster, err := kafkaserver.Start(ctx, kafkaserver.Options{
		Settings: map[string]string{"num.network.threads": "3", "num.io.threads": "8"}, Proxied: 1,
		Java: []string{"-Xms512m", "-Xmx512m", "-XX:TieredStopAtLevel=4"},
	})
	return &kafka{cluster: cluster}, err
}

func (b *kafka) close() error { return b.cluster.Close() }

func (b *kafka) version() (string, error) {
	_, rest, ok := strings.Cut(b.cluster.Log(1), "Kafka version: ") // of AppInfoParser
	if !ok {
		return "", errors.New("the broker's log does not name its version")
	}
	return "Apache Kafka " + strings.Fields(rest)[0], nil
}

// topic is the topic of a run, and a connection to the broker, which leads all of its partitions.
type topic struct {
	arrivals
	b          *kafka
	name       string
	partitions int
	conn       *kafkaserver.KafkaConn
	inbox      *effects // nil: this process consumes

	from  []kafkaserver.FetchFrom // what is noted
	stop  context.CancelFunc      // of consume
	ended chan struct{}
}

func (b *kafka) place(ctx context.Context, s *stand, l load) (_ place, err error) {
	b.topics++
	t := &topic{arrivals: arrivals{load: l}, b: b, name: fmt.Sprintf("bench-%d", b.topics), partitions: max(l.partitions, 1)}
	for p := range t.partitions {
		t.from = append(t.from, kafkaserver.FetchFrom{TopicPartition: kafkaserver.TopicPartition{Topic: t.name, Partition: p}})
	}
	if err := b.cluster.CreateTopic(ctx, t.name, t.partitions, 1, nil); err != nil {
		return nil, err
	}
	if t.conn, err = kafkaserver.DialKafka(ctx, b.cluster.Brokers()[0]); err == nil && l.inbox {
		t.inbox, err = newEffects(ctx, s, &t.arrivals, t.name+"-inbox", t.declareInbox)
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *topic) declareInbox(ctx context.Context, in *inbox.Inbox) (func(context.Context) error, error) {
	c, err := inboxkafka.New(in, inboxkafka.Config{Brokers: t.b.cluster.Brokers(), Topics: []string{t.name}, Partitions: 1})
	if err != nil {
		return nil, err
	}
	return c.Run, c.Declare(ctx)
}

func (t *topic) close() (err error) {
	t.endReading()
	if t.inbox != nil {
		err = t.inbox.close()
	}
	if t.conn != nil {
		t.conn.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(err, t.b.cluster.DeleteTopic(ctx, t.name))
}

func (t *topic) sink(l load) string {
	if l.compat {
		return fmt.Sprintf("kafka: {brokers: [%q]}", t.b.cluster.Brokers()[0])
	}
	broker := t.b.cluster.Brokers()[0]
	if l.proxied {
		broker = t.way().Addr()
	}
	return fmt.Sprintf("kafka: {brokers: [%q], topic: %s}", broker, t.name)
}

func (t *topic) routed() string { return t.name }

func (t *topic) way() *netproxy.Proxy { return t.b.cluster.Way(0).Proxy(1) }

func (t *topic) debezium() map[string]string {
	sink := debeziumserver.DebeziumKafka(t.b.cluster.Brokers()...)
	sink["debezium.format.header.schemas.enable"] = "false"
	return sink
}

// ends are the end offsets of the partitions.
func (t *topic) ends(ctx context.Context) (map[kafkaserver.TopicPartition]int64, error) {
	var all []kafkaserver.TopicPartition
	for _, f := range t.from {
		all = append(all, f.TopicPartition)
	}
	return t.conn.ListOffsets(ctx, all, kafkaserver.LatestOffset)
}

// depth is what has come or, when nobody consumes, the sum of the end offsets.
func (t *topic) depth() (n int, err error) {
	if t.stop != nil || t.inbox != nil && t.inbox.stop != nil {
		all, err := t.arrived(0)
		return len(all), err
	}
	ends, err := t.ends(context.Background())
	for _, end := range ends {
		n += int(end)
	}
	return n, err
}

// consume notes every record as it comes.
func (t *topic) consume(ctx context.Context) error {
	if t.inbox != nil {
		t.inbox.run(ctx)
		return nil
	}
	ctx, t.stop = context.WithCancel(ctx)
	t.ended = make(chan struct{})
	go func() {
		defer close(t.ended)
		for ctx.Err() == nil {
			if err := t.read(ctx, t.from, 100*time.Millisecond); err != nil && ctx.Err() == nil {
				t.fail(err)
				return
			}
		}
	}()
	return nil
}

func (t *topic) endReading() {
	if t.stop != nil {
		t.stop()
		<-t.ended
	}
}

// read notes what the broker has of some partitions.
func (t *topic) read(ctx context.Context, from []kafkaserver.FetchFrom, wait time.Duration) error {
	answers, err := t.conn.Fetch(ctx, from, kafkaserver.FetchBytes, wait)
	if err != nil {
		return err
	}
	for _, a := range answers {
		next := &t.from[a.Partition]
		for i := range a.Records {
			if r := &a.Records[i]; r.Offset >= next.Offset { // a batch may begin before
				t.take(r)
				next.Offset = r.Offset + 1
			}
		}
		err = errors.Join(err, a.Err)
	}
	return err
}

func (t *topic) take(r *kafkaserver.Record) {
	if !t.load.compat {
		shape := len(r.Headers) == 4 && r.Header("eventType") == "created" && r.Header("aggregateType") == "order" &&
			len(r.Header("cdc_position")) == len("0000000000000000-00000000") && !r.Time.IsZero()
		t.add(r.Header("id"), string(r.Key), r.Value, shape)
		return
	}
	own := 0
	for _, header := range r.Headers {
		if !isContext(header.Name) {
			own++
		}
	}
	t.add(unquoted(r.Header("id")), string(r.Key), r.Value, own == 2 && r.Header("eventType") == compatType)
}

// settle reads every partition to its end.
func (t *topic) settle(ctx context.Context) error {
	if t.inbox != nil {
		return nil // it has all, or the run would not have ended
	}
	t.endReading()
	if t.conn != nil {
		t.conn.Close() // the end of reading may have cut an answer
	}
	var err error
	if t.conn, err = kafkaserver.DialKafka(ctx, t.b.cluster.Brokers()[0]); err != nil {
		return err
	}
	ends, err := t.ends(ctx)
	if err != nil {
		return err
	}
	for {
		left := slices.Clone(t.from)
		left = slices.DeleteFunc(left, func(f kafkaserver.FetchFrom) bool { return f.Offset >= ends[f.TopicPartition] })
		if len(left) == 0 {
			return nil
		}
		if err := t.read(ctx, left, 0); err != nil {
			return err
		}
	}
}

// dial connects a bare loop, which produces one record with all acknowledgements and awaits the
// answer. kafka-go's Client does that with less than its Writer: no goroutine stands between.
func (b *kafka) dial(to place) (publish, error) {
	t := to.(*topic) // a place of this broker is a topic
	transport := &kafkago.Transport{MetadataTopics: []string{t.name}}
	client := &kafkago.Client{Addr: kafkago.TCP(b.cluster.Brokers()...), Transport: transport}
	partitions := make([]int, t.partitions)
	for p := range partitions {
		partitions[p] = p
	}
	balancer := kafkago.Murmur2Balancer{Consistent: true}
	send := func(ctx context.Context, r *loopRow) error {
		key := []byte(r.columns["aggregateid"])
		record := kafkago.Record{
			Time: r.commitTime, Key: kafkago.NewBytes(key), Value: kafkago.NewBytes([]byte(r.columns["payload"])),
			Headers: []kafkago.Header{
				{Key: "id", Value: []byte(r.columns["id"])},
				{Key: "eventType", Value: []byte(r.columns["type"])},
				{Key: "aggregateType", Value: []byte(r.columns["aggregatetype"])},
				{Key: "cdc_position", Value: []byte(r.position)},
			},
		}
		answer, err := client.Produce(ctx, &kafkago.ProduceRequest{
			Topic: t.name, Partition: balancer.Balance(kafkago.Message{Key: key}, partitions...),
			RequiredAcks: kafkago.RequireAll, Records: kafkago.NewRecordReader(record),
		})
		if err == nil {
			err = answer.Error
		}
		if err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		return nil
	}
	return publish{send: send, close: transport.CloseIdleConnections}, nil
}

// coalescePauses are the ways in which the bare reader can read, of which the best counts: at once,
// or in coalesced reads.
var coalescePauses = []time.Duration{0, 200 * time.Microsecond, time.Millisecond}

// bare reads the rows from a slot with the settings that the relay has, and throws them away: a
// Kafka broker takes more than a slot gives. It reads from the beginning each time, since it
// reports nothing.
func (b *kafka) bare(s *stand, l load) run {
	return func(ctx context.Context) (best outcome, err error) {
		err = s.fresh(ctx, func() error {
			if err := s.exec(ctx, publicationSQL, "SELECT pg_create_logical_replication_slot('bench_bare', 'pgoutput')"); err != nil {
				return err
			}
			if _, err := s.fill(ctx, l); err != nil {
				return err
			}
			for _, pause := range coalescePauses {
				rate, err := readSlot(ctx, s.db, l.events, pause)
				if err != nil {
					return err
				}
				best.rate = max(best.rate, rate)
				err = await(ctx, watchEvery, "the slot", func() (_ int, free bool, err error) {
					err = s.ask(ctx, &free, "SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'bench_bare'")
					return 0, free, err
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		return best, err
	}
}

// coalescer reads as the relay does when much waits: what the server has written is left to gather
// for a moment after a small read, since a reader that takes every row at once is woken for each,
// and the server pays for that.
type coalescer struct {
	from  io.Reader
	pause time.Duration // 0: reads at once
	small bool          // the last read was
}

func (g *coalescer) Read(p []byte) (int, error) {
	if g.small && g.pause > 0 {
		pause := unix.NsecToTimespec(g.pause.Nanoseconds())
		_ = unix.Nanosleep(&pause, nil) //nolint:errcheck // Go's own timers may wait a millisecond; cut short by a signal it is a smaller coalesced read
	}
	n, err := g.from.Read(p)
	g.small = n < 32<<10
	return n, err
}

// readSlot is how many rows a second come out of the bare slot.
func readSlot(ctx context.Context, db string, rows int, pause time.Duration) (rate float64, err error) {
	cfg, err := pgconn.ParseConfig(db)
	if err != nil {
		return 0, fmt.Errorf("read address of PostgreSQL: %w", err)
	}
	cfg.RuntimeParams["replication"] = "database"
	cfg.RuntimeParams["wal_sender_timeout"] = "0" // nothing is reported to it
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return pgproto3.NewFrontend(bufio.NewReaderSize(&coalescer{from: r, pause: pause}, 512<<10), w)
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return 0, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Conn().Close() // only read from
	defer context.AfterFunc(ctx, func() { conn.Conn().Close() })()
	options := pglogrepl.StartReplicationOptions{PluginArgs: []string{"proto_version '1'", `publication_names '"bench"'`, "messages 'true'"}}
	if err := pglogrepl.StartReplication(ctx, conn, "bench_bare", 0, options); err != nil {
		return 0, fmt.Errorf("start replication: %w", err)
	}
	var first time.Time
	for n := 0; n < rows; {
		// another context costs more than the message
		msg, err := conn.ReceiveMessage(context.Background())
		if err != nil {
			return 0, fmt.Errorf("receive: %w", err)
		}
		const walHeader = 1 + 8 + 8 + 8 // of XLogData
		data, ok := msg.(*pgproto3.CopyData)
		if ok && data.Data[0] == pglogrepl.XLogDataByteID && len(data.Data) > walHeader && data.Data[walHeader] == 'I' {
			if n++; n == 1 {
				first = time.Now()
			}
		}
	}
	return float64(rows-1) / time.Since(first).Seconds(), nil
}
