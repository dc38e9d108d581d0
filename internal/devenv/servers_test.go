package devenv

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sys/unix"
)

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute) // some start a dozen servers
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPostgresKeepsCommittedRowsThroughStopAndKill(t *testing.T) {
	ctx := testContext(t)
	p, err := StartPostgres(ctx, PostgresOptions{Settings: map[string]string{"application_name": "it's set"}})
	must(t, err)
	defer func() { must(t, p.Close()) }()
	addr := p.Addr()
	must(t, p.exec(ctx, "CREATE TABLE kept (n int)"))

	ends := map[string]func() error{
		"smart":     func() error { _, err := p.Stop("smart"); return err },
		"fast":      func() error { _, err := p.Stop("fast"); return err },
		"immediate": func() error { _, err := p.Stop("immediate"); return err },
		"kill":      p.Kill,
	}
	rows := 0
	for name, end := range ends {
		must(t, p.exec(ctx, "INSERT INTO kept VALUES (1)"))
		rows++
		must(t, end())
		if conn, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			conn.Close()
			t.Fatalf("after %s the server still listens", name)
		}
		must(t, p.Start(ctx))
		var n int
		must(t, p.query(ctx, &n, "SELECT count(*) FROM kept"))
		if n != rows || p.Addr() != addr {
			t.Fatalf("after %s: %d rows at %s, want %d at %s", name, n, p.Addr(), rows, addr)
		}
	}
	if _, err := p.Stop("slowly"); err == nil {
		t.Fatal("an unknown mode was taken")
	}
	var level, name string
	must(t, p.query(ctx, &level, "SHOW wal_level"))
	must(t, p.query(ctx, &name, "SELECT reset_val FROM pg_settings WHERE name = 'application_name'"))
	if level != "logical" || name != "it's set" && name != "" {
		t.Fatalf("wal_level %q, application_name %q", level, name)
	}
}

// A machine has room for some thousands of segments, and a run of all tests starts some hundred servers.
func TestClosedPostgresLeavesNoSharedMemory(t *testing.T) {
	p, err := StartPostgres(testContext(t), PostgresOptions{})
	must(t, err)
	defer func() { must(t, p.Close()) }()
	id, ok := p.segment()
	var is unix.SysvShmDesc
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &is); !ok || err != nil || is.Nattch == 0 {
		t.Fatalf("the running server has no segment %d: %v", id, err)
	}
	must(t, p.Close())
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &is); err == nil {
		t.Errorf("segment %d is left behind", id)
	}
}

func TestDatabaseIsDroppedWithItsSlotsAndSessions(t *testing.T) {
	ctx := testContext(t)
	p := SharedPostgres(t)
	var dbURL string
	t.Run("test with a database", func(t *testing.T) {
		dbURL = p.Database(t)
		conn, err := pgx.Connect(ctx, dbURL)
		must(t, err)
		t.Cleanup(func() { conn.Close(ctx) })
		_, err = conn.Exec(ctx, "SELECT pg_create_logical_replication_slot('left_behind', 'pgoutput')")
		must(t, err)
		t.Cleanup(func() {}) // the database is dropped after the connection above is closed; this one stays open:
		stays, err := pgx.Connect(ctx, dbURL)
		must(t, err)
		_ = stays
	})
	if conn, err := pgx.Connect(ctx, dbURL); err == nil {
		conn.Close(ctx)
		t.Fatal("the database is still there")
	}
	var slots int
	must(t, p.query(ctx, &slots, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'left_behind'"))
	if slots != 0 {
		t.Fatal("the slot is still there")
	}
}

// TestRabbit does to a broker of its own what tests may not do to the shared one.
func TestRabbit(t *testing.T) {
	ctx := testContext(t)
	r, err := StartRabbitMQ(ctx, RabbitOptions{})
	must(t, err)
	defer func() { must(t, r.Close()) }()

	t.Run("memory alarm", func(t *testing.T) {
		must(t, r.Alarm(ctx, true))
		out, err := r.Ctl(ctx, "eval", "rabbit_alarm:get_alarms().")
		must(t, err)
		if !strings.Contains(out, "memory") {
			t.Fatalf("alarms are %s", out)
		}
		must(t, r.Alarm(ctx, false))
	})

	t.Run("max message size", func(t *testing.T) {
		must(t, r.SetMaxMessageSize(ctx, 1000))
		defer func() { must(t, r.SetMaxMessageSize(ctx, 134217728)) }()
		onChannel(t, r.VHost(t), func(ch *amqp.Channel) {
			closed := ch.NotifyClose(make(chan *amqp.Error, 1))
			must(t, ch.PublishWithContext(ctx, "", "nowhere", false, false, amqp.Publishing{Body: make([]byte, 1001)}))
			select {
			case err := <-closed:
				if err == nil || !strings.Contains(err.Reason, "larger than configured max size 1000") {
					t.Fatalf("channel closed with %v", err)
				}
			case <-ctx.Done():
				t.Fatal("the channel was not closed")
			}
		})
	})

	t.Run("stop and kill keep persistent messages, a consumer goes on", func(t *testing.T) {
		c, err := StartConsumer(ctx, ConsumerOptions{URL: r.URL()})
		must(t, err)
		defer c.Close()
		onChannel(t, r.URL(), func(ch *amqp.Channel) {
			_, err := ch.QueueDeclare("unread", true, false, false, false, nil)
			must(t, err)
			must(t, ch.QueueBind("unread", "#", "outbox.events", false, nil))
		})
		rows := numberedRows(3000)
		publish(t, r.URL(), inOrder, rows[:1000]...)
		must(t, r.Stop(ctx))
		must(t, r.Start(ctx))
		publish(t, r.URL(), inOrder, rows[1000:2000]...)
		must(t, r.Kill())
		must(t, r.Start(ctx))
		publish(t, r.URL(), inOrder, rows[2000:]...)
		must(t, c.Drain(ctx))
		must(t, c.WaitCount(ctx, len(rows)))
		if v := Check(History{Committed: rows, Deliveries: c.Deliveries()}); v.Err() != nil {
			t.Fatal(v)
		}
		onChannel(t, r.URL(), func(ch *amqp.Channel) {
			q, err := ch.QueueDeclarePassive("unread", true, false, false, false, nil)
			must(t, err)
			if q.Messages != len(rows) {
				t.Fatalf("%d messages are kept, want %d", q.Messages, len(rows))
			}
		})
	})
}

// A test can not do to the shared broker what the other tests would feel, whoever started it.
func TestSharedBrokerIsNotReconfigured(t *testing.T) {
	ctx := testContext(t)
	r := SharedRabbitMQ(t)
	r.VHost(t)
	_, ctl := r.Ctl(ctx, "list_users")
	for what, err := range map[string]error{
		"Ctl": ctl, "Alarm": r.Alarm(ctx, true), "SetMaxMessageSize": r.SetMaxMessageSize(ctx, 1000), "Stop": r.Stop(ctx), "Kill": r.Kill(),
	} {
		if err == nil {
			t.Errorf("%s works on the shared broker", what)
		}
	}
}

// An address in the environment is where SharedRabbitMQ goes; OwnRabbitMQ is ours all the same.
func TestOwnBrokerIsOursWhateverIsGiven(t *testing.T) {
	const given = "CDC_RELAY_TEST_RABBITMQ"
	if os.Getenv(given) == "" { // the test itself runs in a child, to which our shared broker is given
		ctx := testContext(t)
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
		cmd.Env = append(environWithout(ownerVariable), given+"="+SharedRabbitMQ(t).URL())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Fatalf("with an address in the environment: %v: %s", err, out)
		}
		return
	}
	own, shared := OwnRabbitMQ(t), SharedRabbitMQ(t)
	if shared.URL() != os.Getenv(given) || own.Addr() == shared.Addr() {
		t.Fatalf("shared is %s, own is %s", shared.Addr(), own.Addr())
	}
	if _, err := own.Ctl(testContext(t), "list_users"); err != nil {
		t.Error(err)
	}
}

func TestMissingServerNamesTheCommand(t *testing.T) {
	_, err := StartPostgres(testContext(t), PostgresOptions{BinDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "make deps") {
		t.Fatalf("error is %v", err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	_, err = StartKafka(testContext(t), KafkaOptions{})
	if err == nil || !strings.Contains(err.Error(), "make deps") {
		t.Fatalf("error is %v", err)
	}
	_, err = StartPrometheus(testContext(t), PrometheusOptions{})
	if err == nil || !strings.Contains(err.Error(), "make deps") {
		t.Fatalf("error is %v", err)
	}
	if _, err := os.Stat("/usr/lib/rabbitmq/bin"); err == nil {
		_, err = StartRabbitMQ(testContext(t), RabbitOptions{})
		if err == nil || !strings.Contains(err.Error(), "make deps") {
			t.Fatalf("error is %v", err)
		}
	}
}

func onChannel(t testing.TB, url string, do func(*amqp.Channel)) {
	t.Helper()
	conn, err := amqp.Dial(url)
	must(t, err)
	defer conn.CloseDeadline(time.Now().Add(5 * time.Second))
	ch, err := conn.Channel()
	must(t, err)
	do(ch)
}
