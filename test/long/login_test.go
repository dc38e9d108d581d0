//go:build nightly

// Wrong passwords: exit 1 after a minute.

package long

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A server that refuses the password is tried for a minute, the password read again each time; then
// a relay that never had a connection ends with 1. One that had goes on trying, and takes the right
// password up when it is there.

// login is a server with a role of its own, whose password can be changed.
type login struct {
	s      *stand.Stand
	cut    func()
	file   string // with the password that the relay reads
	change func(password string)
	down   string // in /readyz
	says   string // in the log, when the relay gives up
	bound  int    // of duplicates when the way is cut
}

func TestWrongRabbitMQPassword(t *testing.T) {
	rmq, err := rabbitserver.Start(await.Context(t), rabbitserver.Options{})
	await.Must(t, err)
	t.Cleanup(func() { closed(t, rmq) })
	tests(t, func(t *testing.T) login {
		s := stand.New(t, stand.OnRabbitMQ(rmq))
		user, file := fmt.Sprintf("u%d", time.Now().UnixNano()), passwordFile(t)
		ctl := func(args ...string) {
			_, err := rmq.Ctl(s.Context(), args...)
			s.Must(err)
		}
		ctl("add_user", user, "right")
		_, vhost, _ := strings.Cut(strings.TrimPrefix(s.RabbitMQ.VHost, "amqp://"), "/")
		ctl("set_permissions", "-p", vhost, user, ".*", ".*", ".*")
		s.RabbitMQ.NoUser, s.Sink = true, "username: "+user+", password: '${file:"+file+"}'"
		return login{s, cut(s, s.Broker), file, func(p string) { ctl("change_password", user, p) }, "broker down", "password", s.Keys}
	})
}

// A Kafka keeps a connection that has logged in, so it is restarted to be asked again.
func TestWrongKafkaPassword(t *testing.T) {
	tests(t, func(t *testing.T) login {
		cluster := stand.OwnKafka(t, kafkaserver.Options{Secure: true})
		s := stand.New(t, stand.OnKafka(cluster, stand.Topics{}))
		file := passwordFile(t)
		change := func(p string) { s.Must(cluster.SetPassword(s.Context(), "user", p)) }
		change("right")
		s.Kafka.Brokers = cluster.SASLBrokers()
		s.Sink = "sasl: {mechanism: scram-sha-512, username: user, password: '${file:" + file + "}'}"
		restart := func() {
			s.Must(cluster.KillNode(1))
			s.Must(cluster.StartNode(s.Context(), 1))
		}
		return login{s, restart, file, change, "broker down", "refused the login", 0}
	})
}

func cut(s *stand.Stand, way *netproxy.Proxy) func() {
	return func() {
		way.Cut()
		s.Must(way.Restore())
	}
}

func TestWrongPostgresPassword(t *testing.T) {
	hba, err := os.CreateTemp("", "pg_hba") //nolint:usetesting // t.TempDir is root's alone, and the server runs as another user
	await.Must(t, err)
	t.Cleanup(func() { os.Remove(hba.Name()) })
	_, err = hba.WriteString("host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n") //nolint:dupword // database and user
	if err == nil {
		err = hba.Chmod(0o644) // the server runs as another user
	}
	await.Must(t, err)
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{Settings: map[string]string{"hba_file": hba.Name()}})
	await.Must(t, err)
	t.Cleanup(func() { closed(t, pg) })
	tests(t, func(t *testing.T) login {
		s := stand.On(t, pg, stand.SharedRabbitMQ(t))
		file := passwordFile(t)
		s.User = fmt.Sprintf("u%d", time.Now().UnixNano())
		s.SQL(fmt.Sprintf("CREATE ROLE %s SUPERUSER REPLICATION LOGIN PASSWORD 'right'", s.User))
		s.Source = "password: '${file:" + file + "}'"
		change := func(p string) { s.SQL(fmt.Sprintf("ALTER ROLE %s PASSWORD '%s'", s.User, p)) }
		return login{s, cut(s, s.Postgres), file, change, "waiting for postgres", "password", 0}
	})
}

func tests(t *testing.T, open func(*testing.T) login) {
	t.Helper()
	t.Run("FromTheStart", func(t *testing.T) {
		stand.Parallel(t)
		l := open(t)
		l.write("wrong")
		r := l.s.Launch()
		l.s.Unready(r, l.down)
		code, err := r.Exit(l.s.Context())
		l.s.Must(err)
		if code != 1 || !strings.Contains(r.Log(), l.says) {
			t.Errorf("relay ended with %d, want 1 and the words %q", code, l.says)
		}
		l.write("right")
		l.s.Start()
		l.s.Write(30)
		l.s.Check(0)
	})
	t.Run("ChangedWhileItRuns", func(t *testing.T) {
		stand.Parallel(t)
		l := open(t)
		l.write("right")
		r := l.s.Start()
		l.s.Write(30)
		l.s.Arrived()
		l.change("new")
		l.cut()
		l.s.Unready(r, l.down)
		l.s.WriteAt(700, 10) // takes longer than the minute
		if !r.Running() {
			t.Fatal("the relay has given up, although it had a connection before")
		}
		l.write("new")
		l.s.Ready(r)
		l.s.Check(l.bound)
	})
}

// write puts the password where the relay reads it.
func (l login) write(password string) {
	l.s.T.Helper()
	l.s.Must(os.WriteFile(l.file, []byte(password), 0o600))
}

func passwordFile(t *testing.T) string { return filepath.Join(t.TempDir(), "password") }

func closed(t *testing.T, server interface{ Close() error }) {
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}
