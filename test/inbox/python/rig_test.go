//go:build testall

package python

import (
	"context"
	"crypto/rand"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// service is what the consumers of this package are called.
const service = "mails"

// rig is a database with the tables of docs/consuming.md, a virtual host with the relay's
// exchange, and a proxy in front of the broker.
type rig struct {
	t        *testing.T
	ctx      context.Context
	database string
	broker   string // through the proxy
	vhost    string // not through it
	proxy    *netproxy.Proxy
	sql      *pgx.Conn
	amqp     *amqp.Channel // not through it
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, ctx: await.Context(t), database: servers.SharedPostgres(t).Database(t)}
	var err error
	r.sql, err = pgx.Connect(r.ctx, r.database)
	await.Must(t, err)
	t.Cleanup(func() { await.Must(t, r.sql.Close(context.Background())) })
	for _, statement := range documented(t, "sql") {
		r.exec(statement)
	}

	r.vhost = servers.SharedRabbitMQ(t).VHost(t)
	conn, err := amqp.Dial(r.vhost)
	await.Must(t, err)
	t.Cleanup(func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) })
	r.amqp, err = conn.Channel()
	await.Must(t, err)
	await.Must(t, r.amqp.ExchangeDeclare("outbox.events", "topic", true, false, false, false, nil))
	through, err := url.Parse(r.vhost)
	await.Must(t, err)
	r.proxy, err = netproxy.Start(through.Host)
	await.Must(t, err)
	t.Cleanup(r.proxy.Close)
	through.Host = r.proxy.Addr()
	r.broker = through.String()
	return r
}

// python runs the interpreter whose packages scripts/deps.sh installs, in the folder of the page's
// program.
func (r *rig) python(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(r.ctx, "/usr/bin/python3", append([]string{"-B"}, args...)...)
	cmd.Dir = "../../../examples/python"
	cmd.Env = append(processes.EnvironWithout(processes.OwnerVariable),
		"SERVICE="+service, "AMQP_URL="+r.broker, "DATABASE_URL="+r.database, "RETRY_LEVELS=1s,2s")
	return cmd
}

// start runs a consumer until the test ends, and returns when it consumes.
func (r *rig) start() *processes.Process {
	r.t.Helper()
	p, err := processes.Start("consumer.py", r.python("consumer.py"), filepath.Join(r.t.TempDir(), "log"))
	await.Must(r.t, err)
	r.t.Cleanup(func() { await.Must(r.t, p.Kill()) })
	await.Until(r.t, "the consumer to consume", func() bool {
		if !p.Running() {
			r.t.Fatalf("the consumer has ended (make deps-all installs what it imports):\n%s", processes.ReadLog(p.LogPath))
		}
		return r.consumers() == 1
	}, func() any { return processes.ReadLog(p.LogPath) })
	return p
}

// consumers is how many of them the queue of the service has; 0 also while there is no queue.
func (r *rig) consumers() int {
	r.t.Helper()
	return r.queue(service).Consumers
}

// queue asks for a queue on a channel of its own: the broker closes it when there is none.
func (r *rig) queue(name string) amqp.Queue {
	r.t.Helper()
	conn, err := amqp.Dial(r.vhost)
	await.Must(r.t, err)
	defer conn.CloseDeadline(time.Now().Add(time.Second))
	ch, err := conn.Channel()
	await.Must(r.t, err)
	q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
	if err != nil && !strings.Contains(err.Error(), "NOT_FOUND") {
		r.t.Fatal(err)
	}
	return q
}

// publish sends an order as the relay would, with a count of attempts that is none, and with
// headers of most types that a JSON object has. The event "numbers" has the others, too. tenant may
// be another one.
func (r *rig) publish(id, body string, tenant ...string) {
	r.t.Helper()
	headers := amqp.Table{
		"aggregate_id": "7", "timestamp_in_ms": time.Now().UnixMilli(), "x-retry-count": "none", "cdc_position": rand.Text(),
		"tenant": "ü" + strings.Join(tenant, ""), "yes": true, "no": false, "none": nil, "table": amqp.Table{}, "": "",
	}
	if id == "numbers" {
		headers["n"], headers["f"] = int64(5), 0.5
	}
	await.Must(r.t, r.amqp.PublishWithContext(r.ctx, "outbox.events", "order", true, false, amqp.Publishing{
		MessageId: id, ContentType: "application/json", DeliveryMode: amqp.Persistent, Type: "OrderPlaced",
		Headers: headers, Body: []byte(body),
	}))
}

// order is the body of one.
func order(total string) string { return `{"total": ` + total + `}` }

// dead returns the next dead letter.
func (r *rig) dead() (d amqp.Delivery) {
	r.t.Helper()
	await.Until(r.t, "a dead letter", func() bool {
		got, ok, err := r.amqp.Get(service+".dlq", true)
		await.Must(r.t, err)
		d = got
		return ok
	})
	return d
}

func (r *rig) exec(statement string) {
	r.t.Helper()
	_, err := r.sql.Exec(r.ctx, statement)
	await.Must(r.t, err)
}

// count is the number that a query gives.
func (r *rig) count(query string, args ...any) (n int) {
	r.t.Helper()
	await.Must(r.t, r.sql.QueryRow(r.ctx, query, args...).Scan(&n))
	return n
}

// effects are how often a message had its effect.
func (r *rig) effects(id string) int {
	r.t.Helper()
	return r.count("SELECT count(*) FROM notifications WHERE message_id = $1", id)
}

// processed waits until a message has been processed.
func (r *rig) processed(id string) {
	r.t.Helper()
	await.Until(r.t, "message "+id+" to be processed", func() bool {
		return r.count("SELECT count(*) FROM processed_messages WHERE service = $1 AND id = $2", service, id) == 1
	})
}
