// Package stand puts the real relay between a real PostgreSQL and a real broker, each behind a
// proxy, under load, and asks the checker what became of it. It is for the tests of test/fault and
// test/long.
package stand

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/sentinel"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// Stand is one database and one place of its own on a broker, each behind a proxy, and what is
// needed to run relays between them. Fields under "set before Start" are parts of the relay's
// configuration.
type Stand struct {
	T  *testing.T
	DB string // URL, not through the proxy
	// PostgresAddr is host:port of the server, for more proxies.
	PostgresAddr string
	Postgres     *netproxy.Proxy
	// Hosts are what the relays have in place of Postgres, when there are several servers.
	Hosts    []string
	Broker   *netproxy.Proxy // nil: the relay goes to the brokers themselves
	Consumer consumers.Witness

	// Set before Start.
	Slot        string   // also the publication's name
	User        string   // role of the relay; "" for that of DB
	Ordering    string   // "key", also for the checker
	Source      string   // more of section source, as in a flow mapping: "max_event_bytes: 10"
	Sink        string   // more of the sink's section, likewise
	Compat      string   // section sink.compat, likewise: it names the topic or exchange
	Delivery    string   // more of section delivery, likewise
	Retry       string   // section retry, likewise
	DeadLetters string   // section dead_letters, likewise
	Guard       string   // section guard, likewise
	Retention   string   // section retention, likewise
	Timeout     string   // source.wal_sender_timeout; "4s"
	Env         []string // more of the relay's environment: NAME=VALUE

	Keys  int         // of the workload; 20
	Kinds []load.Kind // of rows beside the usual ones of the workload

	// Binary is that of the relays and commands from now on; this version's.
	Binary string

	// Messages are events that were committed and are no rows of the table (source.message_prefix).
	Messages []checker.Row

	RabbitMQ *RabbitMQ // nil: it is Kafka
	Kafka    *Kafka    // nil: it is RabbitMQ

	place   Place
	usual   string                 // destination of usual rows when they are routed; see Route
	reports *consumers.ReportWatch // nil: not watched
	ctx     context.Context        // of the test's calls
	sql     session
	mu      sync.Mutex
	loads   []*load.Workload
}

// New is a stand on the shared PostgreSQL, with the outbox table of `init --outbox-table`.
func New(t *testing.T, place Place) *Stand {
	t.Helper()
	return On(t, servers.SharedPostgres(t), place)
}

// On is a stand on the given servers.
func On(t *testing.T, pg *pgserver.Postgres, place Place) *Stand {
	t.Helper()
	s := Bare(t, pg, place)
	s.Must(load.CreateOutbox(s.Context(), s.DB))
	return s
}

// Bare is a stand whose database is empty.
func Bare(t *testing.T, pg *pgserver.Postgres, place Place) *Stand {
	t.Helper()
	return bare(t, pg.Database(t), pg.Addr(), place)
}

func bare(t *testing.T, db, addr string, place Place) *Stand {
	t.Helper()
	s := &Stand{
		T: t, ctx: await.Context(t), Binary: runner.Build(t), place: place, DB: db,
		Slot: fmt.Sprintf("fault_%d", time.Now().UnixNano()), Ordering: "key", Timeout: "4s", Keys: 20,
	}
	t.Cleanup(s.sql.close)
	s.PostgresAddr = addr
	s.Postgres = s.Proxy(s.PostgresAddr)
	place.open(s)
	t.Cleanup(s.Consumer.Close)
	s.Env = servers.WatchedTraces(t)
	return s
}

// Proxy starts one more proxy, until the test ends.
func (s *Stand) Proxy(target string) *netproxy.Proxy {
	s.T.Helper()
	p, err := netproxy.Start(target)
	s.Must(err)
	s.T.Cleanup(p.Close)
	return p
}

// Config is the relay's configuration, through the stand's two proxies.
func (s *Stand) Config() string { return s.ConfigVia(s.Postgres) }

// ConfigVia is Config through another proxy in front of PostgreSQL.
func (s *Stand) ConfigVia(postgres *netproxy.Proxy) string {
	s.T.Helper()
	u, err := url.Parse(s.DB)
	s.Must(err)
	u.Host = postgres.Addr()
	if len(s.Hosts) > 0 {
		u.Host = strings.Join(s.Hosts, ",")
	}
	if s.User != "" {
		u.User = url.User(s.User)
	}
	return fmt.Sprintf("log: {level: debug}\nsource: {url: '%s', slot: %s, publication: %s, wal_sender_timeout: %s%s}\n"+
		"sink: {%s%s}\ndelivery: {ordering: %s%s}\n%s%s%s%s",
		u, s.Slot, s.Slot, s.Timeout, more(s.Source), s.place.sink(s), s.compat(), s.Ordering, more(s.Delivery),
		section("retry", s.Retry), section("dead_letters", s.DeadLetters), section("guard", s.Guard), section("retention", s.Retention))
}

// section is one that stands in the configuration only when a test sets something in it.
func section(name, flow string) string {
	if flow == "" {
		return ""
	}
	return name + ": {" + flow + "}\n"
}

func (s *Stand) compat() string {
	if s.Compat == "" {
		return ""
	}
	return ", compat: {" + s.Compat + "}"
}

func more(flow string) string {
	if flow == "" {
		return ""
	}
	return ", " + flow
}

// Launch starts a relay and does not wait for it.
func (s *Stand) Launch() *runner.Relay {
	s.T.Helper()
	return s.LaunchVia(s.Postgres)
}

// LaunchVia is Launch through another proxy in front of PostgreSQL.
func (s *Stand) LaunchVia(postgres *netproxy.Proxy) *runner.Relay {
	s.T.Helper()
	relay := runner.StartRelayIn(s.T, s.Env, s.Binary, s.ConfigVia(postgres))
	// The rows here have personal data, so the check is asked, too. It connects to both sides.
	s.T.Cleanup(func() { relay.LookForLeaks("/api/v1/check") })
	return relay
}

// Start starts a relay and waits until it is ready.
func (s *Stand) Start() *runner.Relay {
	s.T.Helper()
	return s.Ready(s.Launch())
}

// StartWatched is WatchFlush and Start.
func (s *Stand) StartWatched() *runner.Relay {
	s.T.Helper()
	s.WatchFlush()
	return s.Start()
}

// Readyz is what a relay answers there.
func (s *Stand) Readyz(r *runner.Relay) (code int, body string) {
	s.T.Helper()
	code, body, err := r.Get(s.Context(), "/readyz")
	s.Must(err)
	return code, body
}

// Command runs a command of the relay with the stand's configuration, beside the proxies.
func (s *Stand) Command(args ...string) runner.Result {
	s.T.Helper()
	result, err := runner.RunCommand(s.Context(), s.Binary, s.Config(), args...)
	s.Must(err)
	said := result.Stderr
	// which show keys to whoever asks
	if !slices.Contains(args, "show") && !slices.Contains(args, "list") {
		said += result.Stdout
	}
	if err := sentinel.Leak("what cdc-relay "+strings.Join(args, " ")+" says", said); err != nil {
		s.T.Error(err)
	}
	return result
}

// Ready waits until a relay is ready.
func (s *Stand) Ready(r *runner.Relay) *runner.Relay {
	s.T.Helper()
	s.Must(r.WaitReady(s.Context()))
	return r
}

// Leads waits until a relay is ready as the leader.
func (s *Stand) Leads(r *runner.Relay) {
	s.T.Helper()
	s.Until("the relay to lead", func() bool {
		code, _, err := r.Get(s.Context(), "/readyz?role=leader")
		return err == nil && code == 200
	})
}

// Deposed waits until a former leader stands by, or ends fenced; it says which.
func (s *Stand) Deposed(r *runner.Relay) (ended bool) {
	s.T.Helper()
	s.Until("the former leader to stand by, or to end fenced", func() bool {
		if !r.Running() {
			return true
		}
		code, _, err := r.Get(s.Context(), "/readyz")
		leads, _, err2 := r.Get(s.Context(), "/readyz?role=leader")
		return err == nil && err2 == nil && code == 200 && leads == 503
	})
	if !r.Running() {
		s.Exits(r, 1, "fenced")
		return true
	}
	return false
}

// Unready waits until a relay says that it is not ready, for a reason that contains why.
func (s *Stand) Unready(r *runner.Relay, why string) {
	s.T.Helper()
	s.Until("a relay that is not ready: "+why, func() bool {
		code, body, err := r.Get(s.Context(), "/readyz")
		return err == nil && code == 503 && strings.Contains(body, why)
	})
}

// Exits waits for the relay's end with the code, and for the words in its log.
func (s *Stand) Exits(r *runner.Relay, code int, words ...string) {
	s.T.Helper()
	got, err := r.Exit(s.Context())
	s.Must(err)
	if got != code {
		s.T.Errorf("relay ended with %d, want %d", got, code)
	}
	for _, word := range words {
		if !strings.Contains(r.Log(), word) {
			s.T.Errorf("the relay's log does not have %q", word)
		}
	}
}

// Accept runs the first accept that was said, with these flags instead of the printed ones.
func (s *Stand) Accept(said string, flags ...string) {
	s.T.Helper()
	args := append([]string{"accept", FindingID(s.T, said), "--reason", "a test"}, flags...)
	if result := s.Command(args...); result.Code != 0 {
		s.T.Fatalf("cdc-relay %s ends with %d: %s%s", strings.Join(args, " "), result.Code, result.Stdout, result.Stderr)
	}
}

// FindingID is the ID in the first accept that was said.
func FindingID(t testing.TB, said string) string {
	t.Helper()
	id := acceptLine.FindStringSubmatch(said)
	if id == nil {
		t.Fatalf("there is no accept in: %s", said)
	}
	return id[1]
}

var acceptLine = regexp.MustCompile(`cdc-relay accept ([0-9a-f]{12})`)

// Must ends the test on an error.
func (s *Stand) Must(err error) {
	s.T.Helper()
	await.Must(s.T, err)
}

// Context is for the calls of the test. It has no deadline.
func (s *Stand) Context() context.Context { return s.ctx }

// Until polls ok until it is true, soon less often: an answer costs the relay or the database more
// than the wait.
func (s *Stand) Until(what string, ok func() bool) {
	s.T.Helper()
	polls := 0
	await.Until(s.T, what, func() bool {
		if polls++; polls > 20 {
			time.Sleep(3 * await.Every)
		}
		return ok()
	})
}
