//go:build testall

package devenv

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

func TestPostgresKeepsCommittedRowsThroughStopAndKill(t *testing.T) {
	ctx := await.Context(t)
	p, err := StartPostgres(ctx, PostgresOptions{Settings: map[string]string{"application_name": "it's set"}})
	await.Must(t, err)
	defer func() { await.Must(t, p.Close()) }()
	addr := p.Addr()
	await.Must(t, p.exec(ctx, "CREATE TABLE kept (n int)"))

	ends := map[string]func() error{
		"smart":     func() error { _, err := p.Stop("smart"); return err },
		"fast":      func() error { _, err := p.Stop("fast"); return err },
		"immediate": func() error { _, err := p.Stop("immediate"); return err },
		"kill":      p.Kill,
	}
	rows := 0
	for name, end := range ends {
		await.Must(t, p.exec(ctx, "INSERT INTO kept VALUES (1)"))
		rows++
		await.Must(t, end())
		if conn, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			conn.Close()
			t.Fatalf("after %s the server still listens", name)
		}
		await.Must(t, p.Start(ctx))
		var n int
		await.Must(t, p.query(ctx, &n, "SELECT count(*) FROM kept"))
		if n != rows || p.Addr() != addr {
			t.Fatalf("after %s: %d rows at %s, want %d at %s", name, n, p.Addr(), rows, addr)
		}
	}
	if _, err := p.Stop("slowly"); err == nil {
		t.Fatal("an unknown mode was taken")
	}
	var level, name string
	await.Must(t, p.query(ctx, &level, "SHOW wal_level"))
	await.Must(t, p.query(ctx, &name, "SELECT reset_val FROM pg_settings WHERE name = 'application_name'"))
	if level != "logical" || name != "it's set" && name != "" {
		t.Fatalf("wal_level %q, application_name %q", level, name)
	}
}

// TestRabbit does to a broker of its own what tests may not do to the shared one.
func TestRabbit(t *testing.T) {
	ctx := await.Context(t)
	r, err := StartRabbitMQ(ctx, RabbitOptions{})
	await.Must(t, err)
	defer func() { await.Must(t, r.Close()) }()

	t.Run("memory alarm", func(t *testing.T) {
		await.Must(t, r.Alarm(ctx, true))
		out, err := r.Ctl(ctx, "eval", "rabbit_alarm:get_alarms().")
		await.Must(t, err)
		if !strings.Contains(out, "memory") {
			t.Fatalf("alarms are %s", out)
		}
		await.Must(t, r.Alarm(ctx, false))
	})

	t.Run("max message size", func(t *testing.T) {
		await.Must(t, r.SetMaxMessageSize(ctx, 1000))
		defer func() { await.Must(t, r.SetMaxMessageSize(ctx, 134217728)) }()
		onChannel(t, r.VHost(t), func(ch *amqp.Channel) {
			closed := ch.NotifyClose(make(chan *amqp.Error, 1))
			await.Must(t, ch.PublishWithContext(ctx, "", "nowhere", false, false, amqp.Publishing{Body: make([]byte, 1001)}))
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
		await.Must(t, err)
		defer c.Close()
		onChannel(t, r.URL(), func(ch *amqp.Channel) {
			_, err := ch.QueueDeclare("unread", true, false, false, false, nil)
			await.Must(t, err)
			await.Must(t, ch.QueueBind("unread", "#", "outbox.events", false, nil))
		})
		rows := numberedRows(3000)
		publish(t, r.URL(), inOrder, rows[:1000]...)
		await.Must(t, r.Stop(ctx))
		await.Must(t, r.Start(ctx))
		publish(t, r.URL(), inOrder, rows[1000:2000]...)
		await.Must(t, r.Kill())
		await.Must(t, r.Start(ctx))
		publish(t, r.URL(), inOrder, rows[2000:]...)
		await.Must(t, c.Drain(ctx))
		await.Must(t, c.WaitCount(ctx, len(rows)))
		if v := Check(History{Committed: rows, Deliveries: c.Deliveries()}); v.Err() != nil {
			t.Fatal(v)
		}
		onChannel(t, r.URL(), func(ch *amqp.Channel) {
			q, err := ch.QueueDeclarePassive("unread", true, false, false, false, nil)
			await.Must(t, err)
			if q.Messages != len(rows) {
				t.Fatalf("%d messages are kept, want %d", q.Messages, len(rows))
			}
		})
	})
}

// An address in the environment is where SharedRabbitMQ goes; OwnRabbitMQ is ours all the same.
func TestOwnBrokerIsOursWhateverIsGiven(t *testing.T) {
	const given = "CDC_RELAY_TEST_RABBITMQ"
	if os.Getenv(given) == "" { // the test itself runs in a child, to which our shared broker is given
		ctx := await.Context(t)
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
	if _, err := own.Ctl(await.Context(t), "list_users"); err != nil {
		t.Error(err)
	}
}
