package servers

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

func queryInto(ctx context.Context, to any, sql string) func(*pgx.Conn) error {
	return func(conn *pgx.Conn) error { return conn.QueryRow(ctx, sql).Scan(to) }
}

// publish sends rows in the order given, as the relay would, and waits for the confirms.
func publish(t *testing.T, url string, commit func(checker.Row) pglogrepl.LSN, rows ...checker.Row) {
	t.Helper()
	ctx := await.Context(t)
	onChannel(t, url, func(ch *amqp.Channel) {
		await.Must(t, ch.Confirm(false))
		var confirms []*amqp.DeferredConfirmation
		for _, r := range rows {
			confirm, err := ch.PublishWithDeferredConfirm("outbox.events", "order.placed", true, false, amqp.Publishing{
				MessageId: r.ID, DeliveryMode: amqp.Persistent, Body: fmt.Appendf(nil, `{"key": "%s", "seq": %d, "fill": ""}`, r.Key, r.Seq),
				Headers: amqp.Table{"aggregate_type": "order", "aggregate_id": r.Key, "cdc_position": event.Position{Commit: commit(r)}.String()},
			})
			await.Must(t, err)
			confirms = append(confirms, confirm)
		}
		for _, confirm := range confirms {
			if ok, err := confirm.WaitContext(ctx); !ok || err != nil {
				t.Fatalf("publish: ack %v, %v", ok, err)
			}
		}
	})
}

func inOrder(r checker.Row) pglogrepl.LSN { return pglogrepl.LSN(1000 * r.Seq) }

// TestFlushWatchSeesAnEarlyReport moves a real slot past a transaction before and after its event
// is in the queue.
func TestFlushWatchSeesAnEarlyReport(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	dbURL := SharedPostgres(t).Database(t)
	url := SharedRabbitMQ(t).VHost(t)
	c, err := consumers.StartConsumer(ctx, consumers.ConsumerOptions{URL: url})
	await.Must(t, err)
	defer c.Close()
	slot := "watched_" + load.NewUUID()[:8]
	await.Must(t, pgserver.OnConn(ctx, dbURL, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "CREATE TABLE commits (n int)"); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot)
		return err
	}))
	life, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- consumers.FlushWatch{DB: dbURL, Slot: slot, Consumer: c}.Run(life) }()
	defer func() { cancel(); await.Must(t, <-ended) }()

	var before, after pglogrepl.LSN
	commit := func() {
		var from, to string
		await.Must(t, pgserver.OnConn(ctx, dbURL, queryInto(ctx, &from, "SELECT pg_current_wal_insert_lsn()::text")))
		await.Must(t, pgserver.OnConn(ctx, dbURL, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "INSERT INTO commits VALUES (1)")
			return err
		}))
		await.Must(t, pgserver.OnConn(ctx, dbURL, queryInto(ctx, &to, "SELECT pg_current_wal_insert_lsn()::text")))
		before, err = pglogrepl.ParseLSN(from)
		await.Must(t, err)
		after, err = pglogrepl.ParseLSN(to)
		await.Must(t, err)
	}
	report := func() {
		await.Must(t, pgserver.OnConn(ctx, dbURL, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SELECT pg_replication_slot_advance($1, $2::pg_lsn)", slot, after.String())
			return err
		}))
		await.Must(t, processes.Poll(ctx, 5*time.Millisecond, func() (bool, error) {
			return slices.ContainsFunc(c.Marks(), func(m checker.Mark) bool { return m.Flush > before }), nil
		}))
	}
	row := []checker.Row{{ID: "one", Key: "k", Seq: 1}, {ID: "two", Key: "k", Seq: 2}}
	at := func(checker.Row) pglogrepl.LSN { return before + 1 }

	commit()
	publish(t, url, at, row[0])
	report()
	await.Must(t, c.Drain(ctx))
	if v := checker.Check(checker.History{Committed: row[:1], Deliveries: c.Deliveries(), Marks: c.Marks()}); v.Err() != nil {
		t.Fatal(v)
	}
	commit()
	report()
	publish(t, url, at, row[1])
	await.Must(t, c.Drain(ctx))
	v := checker.Check(checker.History{Committed: row, Deliveries: c.Deliveries(), Marks: c.Marks()})
	if !slices.Equal(v.FlushAheadOfDelivery, []string{"two"}) || len(v.Lost)+len(v.OutOfOrder) > 0 {
		t.Fatal(v)
	}
}

// TestReportWatchSeesEveryReport: of a real replication connection through the proxy, one by one,
// the early one too.
func TestReportWatchSeesEveryReport(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	server := SharedPostgres(t)
	db, err := url.Parse(server.Database(t))
	await.Must(t, err)
	vhost := SharedRabbitMQ(t).VHost(t)
	c, err := consumers.StartConsumer(ctx, consumers.ConsumerOptions{URL: vhost})
	await.Must(t, err)
	defer c.Close()
	p, err := netproxy.Start(server.Addr())
	await.Must(t, err)
	t.Cleanup(p.Close)
	watch := consumers.NewReportWatch(p, c, "")
	life, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- watch.Run(life) }()
	defer func() { cancel(); await.Must(t, <-ended) }()

	db.Host = p.Addr()
	query := db.Query()
	query.Set("replication", "database")
	db.RawQuery = query.Encode()
	conn, err := pgconn.Connect(ctx, db.String())
	await.Must(t, err)
	defer conn.Close(ctx)
	slot := "reported_" + load.NewUUID()[:8]
	made, err := pglogrepl.CreateReplicationSlot(ctx, conn, slot, "pgoutput", pglogrepl.CreateReplicationSlotOptions{Temporary: true})
	await.Must(t, err)
	from, err := pglogrepl.ParseLSN(made.ConsistentPoint)
	await.Must(t, err)
	await.Must(t, conn.Exec(ctx, "CREATE PUBLICATION "+slot).Close())
	await.Must(t, pglogrepl.StartReplication(ctx, conn, slot, from, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names '" + slot + "'"},
	}))
	const reports = 100
	rows := []checker.Row{{ID: "one", Key: "k", Seq: 1}, {ID: "two", Key: "k", Seq: 2}}
	at := func(r checker.Row) pglogrepl.LSN { return from + pglogrepl.LSN(r.Seq) }
	publish(t, vhost, at, rows[0])
	for i := range reports {
		await.Must(t, pglogrepl.SendStandbyStatusUpdate(ctx, conn, pglogrepl.StandbyStatusUpdate{
			WALWritePosition: from + 1000, WALFlushPosition: from + pglogrepl.LSN(i),
		}))
	}
	await.Must(t, processes.Poll(ctx, 5*time.Millisecond, func() (bool, error) {
		return slices.ContainsFunc(c.Marks(), func(m checker.Mark) bool { return m.Flush == from+reports-1 }), nil
	}))
	if n := watch.Seen(); n != reports {
		t.Errorf("%d reports were seen, want %d", n, reports)
	}
	publish(t, vhost, at, rows[1])
	await.Must(t, c.Drain(ctx))
	v := checker.Check(checker.History{Committed: rows, Deliveries: c.Deliveries(), Marks: c.Marks()})
	if !slices.Equal(v.FlushAheadOfDelivery, []string{"two"}) {
		t.Errorf("reported before delivery: %v, want the second", v.FlushAheadOfDelivery)
	}
}
