//go:build nightly

// The first event: an outbox on a real PostgreSQL, a queue of a real RabbitMQ, and the three
// commands between them that the README has.

package install

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// way is from a database to a queue.
type way struct {
	t     *testing.T
	db    string // URL of the database
	slot  string // and publication: a slot's name is the whole server's
	vhost string // URL of the virtual host
	admin string // host:port
	ch    *amqp.Channel
	sent  int // orders
}

var ways atomic.Int64

func newWay(t *testing.T) *way {
	t.Helper()
	w := &way{
		t: t, db: servers.SharedPostgres(t).Database(t), slot: fmt.Sprintf("install_%d_%d_%d", time.Now().Unix(), os.Getpid(), ways.Add(1)),
		vhost: servers.SharedRabbitMQ(t).VHost(t), admin: fmt.Sprintf("127.0.0.1:%d", processes.FreePort(t)),
	}
	conn, err := amqp.Dial(w.vhost)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	w.ch, err = conn.Channel()
	must(t, err)
	return w
}

// configuration is the one of the README's quick start, with the addresses of this way.
func (w *way) configuration() string {
	w.t.Helper()
	config := pages.Fences(pages.Section(w.t, "README.md", "Quick start"), "yaml")
	if len(config) != 1 {
		w.t.Fatalf("the quick start has %d configurations", len(config))
	}
	text := config[0].Text
	for documented, ours := range map[string]string{
		"postgres://shop:secret@localhost:5432/shop": w.db,
		"amqp://guest:guest@localhost:5672/":         w.vhost,
		"source: {":                                  fmt.Sprintf("source: {slot: %[1]s, publication: %[1]s, ", w.slot),
	} {
		if !strings.Contains(text, documented) {
			w.t.Fatalf("the configuration has no %q: %s", documented, text)
		}
		text = strings.ReplaceAll(text, documented, ours)
	}
	return text + "log: {format: console}\n"
}

// threeCommands are those of the quick start: from an empty database to a relay that runs.
func threeCommands(t *testing.T) (commands [][]string) {
	t.Helper()
	for _, block := range pages.Fences(pages.Section(t, "README.md", "Quick start"), "sh") {
		if strings.Contains(block.Text, "cdc-relay run\n") {
			for line := range strings.Lines(block.Text) {
				commands = append(commands, strings.Fields(line))
			}
		}
	}
	for _, args := range commands {
		if len(commands) != 3 || len(args) < 2 || args[0] != "cdc-relay" {
			t.Fatalf("the quick start is not three commands of cdc-relay: %q", commands)
		}
	}
	return commands
}

// firstEvent runs the three commands, each as command makes it of its arguments, and has an event
// arrive. It returns the relay, which still runs.
func firstEvent(w *way, command func(args ...string) *exec.Cmd) (relay *processes.Process) {
	w.t.Helper()
	for _, args := range threeCommands(w.t) {
		cmd := w.listens(command(args[1:]...))
		if args[1] != "run" {
			succeeds(w.t, cmd)
			continue
		}
		var err error
		relay, err = processes.Start("relay", cmd, filepath.Join(directory(w.t, "log"), "log"))
		must(w.t, err)
		w.t.Cleanup(func() { must(w.t, relay.Kill()) })
	}
	w.ready(relay)
	w.deliver("order")
	return relay
}

// listens has a command of the relay use the admin port of this way.
func (w *way) listens(cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(slices.Clip(cmd.Env), "CDC_RELAY_ADMIN__LISTEN="+w.admin)
	return cmd
}

// ends has the relay stop in order.
func (w *way) ends(relay *processes.Process) {
	w.t.Helper()
	must(w.t, relay.Signal(syscall.SIGTERM))
	must(w.t, relay.Wait(await.Context(w.t)))
	if code := relay.State.ExitCode(); code != 0 {
		w.t.Errorf("SIGTERM ends the relay with %d: %s", code, processes.ReadLog(relay.LogPath))
	}
}

// ready waits until the relay leads, with its exchange declared. relay may be nil: systemd's.
func (w *way) ready(relay *processes.Process) {
	w.t.Helper()
	await.Until(w.t, "the relay to be ready", func() bool {
		if relay != nil && !relay.Running() {
			w.t.Fatalf("the relay has ended: %s", processes.ReadLog(relay.LogPath))
		}
		resp, err := http.Get((&url.URL{Scheme: "http", Host: w.admin, Path: "/readyz", RawQuery: "role=leader"}).String())
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, func() any {
		if relay == nil {
			return nil
		}
		return processes.Tail(processes.ReadLog(relay.LogPath))
	})
	http.DefaultClient.CloseIdleConnections()
}

// deliver inserts an order and waits until the message of it is in the queue of its aggregate.
func (w *way) deliver(aggregate string) {
	w.t.Helper()
	w.bind(aggregate)
	w.insert(aggregate)
	w.arrives(aggregate, w.sent)
}

// bind makes the queue that gets the events of an aggregate.
func (w *way) bind(aggregate string) {
	w.t.Helper()
	_, err := w.ch.QueueDeclare(aggregate, true, false, false, false, nil)
	must(w.t, err)
	must(w.t, w.ch.QueueBind(aggregate, aggregate+".#", "outbox.events", false, nil))
}

// insert commits the next order.
func (w *way) insert(aggregate string) {
	w.t.Helper()
	w.sent++
	w.sql(fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		VALUES (gen_random_uuid(), '%s', '42', 'created', '{"n": %d}')`, aggregate, w.sent))
}

// arrives waits for the message of an order, and fails at another one: a message that comes again
// after a kill is passed over.
func (w *way) arrives(aggregate string, order int) {
	w.t.Helper()
	await.Until(w.t, fmt.Sprintf("order %d", order), func() bool {
		d, ok, err := w.ch.Get(aggregate, true)
		must(w.t, err)
		if !ok {
			return false
		}
		var n int
		if _, err := fmt.Sscanf(string(d.Body), `{"n": %d}`, &n); err != nil || n > order {
			w.t.Fatalf("order %d: %q arrived", order, d.Body)
		}
		return n == order
	})
}

func (w *way) sql(statement string) {
	w.t.Helper()
	must(w.t, pgserver.OnConn(await.Context(w.t), w.db, func(conn *pgx.Conn) error {
		_, err := conn.Exec(await.Context(w.t), statement)
		return err
	}))
}

// number is the result of a statement that counts.
func (w *way) number(statement string) (n int) {
	w.t.Helper()
	must(w.t, pgserver.OnConn(await.Context(w.t), w.db, func(conn *pgx.Conn) error {
		return conn.QueryRow(await.Context(w.t), statement).Scan(&n)
	}))
	return n
}
