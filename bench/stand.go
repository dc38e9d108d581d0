// What the rows are measured on: PostgreSQL, a broker, and programs that publish.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	outbox "github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	debeziumserver "github.com/cdc-relay/cdc-relay/internal/devenv/servers/debezium"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// stand is one PostgreSQL, one broker and the relay's binary. It is used by one goroutine.
type stand struct {
	kind   kind
	quick  bool
	say    func(format string, args ...any) // progress
	pg     *pgserver.Postgres
	broker broker
	binary string
	db     string // URL of the run's database, with the outbox table
	runs   int64  // numbers the runs, as a part of the events' ids
}

// kind is a kind of broker.
type kind struct {
	sink, name string // as the configuration and as people call it
	open       func(ctx context.Context) (broker, error)
}

var kinds = []kind{{"rabbitmq", "RabbitMQ", openRabbit}, {"kafka", "Kafka", openKafka}}

// broker is a broker that runs.
type broker interface {
	version() (string, error)
	// place makes a queue or topic for a run.
	place(ctx context.Context, s *stand, l load) (place, error)
	// bare is the least that does the work of a drain.
	bare(s *stand, l load) run
	// dial connects a bare loop, which publishes row by row to a place.
	dial(to place) (publish, error)
	close() error
}

// place is where the broker keeps the messages of a run.
type place interface {
	sink(l load) string            // the relay's configuration for it, in a line of YAML
	debezium() map[string]string   // Debezium Server's
	routed() string                // the topic that its Event Router names
	way() *netproxy.Proxy          // the relay's to the broker, when the load is proxied
	consume(context.Context) error // from now on what comes is noted
	depth() (int, error)           // messages there, as the broker counts; when consumed: noted
	arrived(n int) ([]arrival, error)
	settle(context.Context) error // all that lies there is noted
	close() error                 // removes it
}

// n is how many events a run has, and length how long rows come: less in a smoke run.
func (s *stand) n(events int) int {
	if s.quick {
		return min(events, 4000)
	}
	return events
}

func (s *stand) length(d time.Duration) time.Duration {
	if s.quick {
		return d / 5
	}
	return d
}

// served builds the relay, and has do use PostgreSQL and the broker.
func (s *stand) served(ctx context.Context, do func() error) (err error) {
	s.say("building the relay, starting %s", s.kind.name)
	if s.binary, err = runner.Binary(); err != nil {
		return err
	}
	// A run should meet no checkpoint, no vacuum and no disk of its own.
	s.pg, err = pgserver.Start(ctx, pgserver.Options{NoFsync: true, Settings: map[string]string{
		"autovacuum": "off", "shared_buffers": "256MB", "max_wal_size": "16GB", "checkpoint_timeout": "1h", "bgwriter_lru_maxpages": "0",
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.pg.Close()) }()
	if s.broker, err = s.kind.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.broker.close()) }()
	return do()
}

// fresh has do use a database that nobody has used, and drops it with its slots.
func (s *stand) fresh(ctx context.Context, do func() error) (err error) {
	const name = "bench"
	if err := s.pg.CreateDatabase(ctx, name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.pg.DropDatabase(context.WithoutCancel(ctx), name)) }()
	s.db = s.pg.URL(name)
	if err := outbox.CreateOutbox(ctx, s.db); err != nil {
		return err
	}
	if err := s.exec(ctx, fillSQL); err != nil {
		return err
	}
	return do()
}

// ask reads one value of the database.
func (s *stand) ask(ctx context.Context, into any, sql string) error {
	return pgserver.OnConn(ctx, s.db, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, sql).Scan(into) })
}

// process is a program that runs, seen from outside.
type process interface {
	Pid() int
	Running() bool
	Log() string
	WaitStreaming(context.Context) error
	Stop(context.Context) error // in order, so that the next one repeats nothing
	Kill() error
}

// program publishes the rows of the stand's database.
type program interface {
	// prepare makes its slot, where it begins.
	prepare(ctx context.Context, s *stand, l load) error
	// start waits for nothing.
	start(ctx context.Context, s *stand, to place, l load) (process, error)
}

// with starts a program, has do use it, and stops it in order. After an error it is killed, and the
// end of its log is in the error.
func (s *stand) with(ctx context.Context, p program, to place, l load, do func(process) error) error {
	r, err := p.start(ctx, s, to, l)
	if err != nil {
		return err
	}
	if err := do(r); err != nil {
		return errors.Join(fmt.Errorf("%w: %s", err, processes.Tail(r.Log())), r.Kill())
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := r.Stop(bounded); err != nil {
		return errors.Join(err, r.Kill())
	}
	return nil
}

// relay is the relay.
type relay struct {
	binary  string
	earlier bool   // it may be of an earlier commit
	source  string // more of that section
	db      string // by another way; "": the stand's
	tabs    int    // of the console that are open while it is heard
}

// relayProcess is a relay that runs.
type relayProcess struct{ *runner.Relay }

func (r relayProcess) WaitStreaming(ctx context.Context) error {
	return r.WaitLog(ctx, `"msg":"streaming"`)
}

// listen has n readers follow the status, as tabs of the console do, until stop is called.
func (r relayProcess) listen(ctx context.Context, n int) (stop func(), err error) {
	ctx, stop = context.WithCancel(ctx)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.Socket())
	}}}
	for range n {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://relay/api/v1/stream", http.NoBody)
		if err != nil {
			return stop, err
		}
		answer, err := client.Do(request) //nolint:bodyclose // closed below, by who reads it
		if err != nil {
			return stop, err
		}
		go func() {
			defer answer.Body.Close()
			_, _ = io.Copy(io.Discard, answer.Body) //nolint:errcheck // it ends when the relay does
		}()
		if answer.StatusCode != http.StatusOK {
			return stop, fmt.Errorf("the stream answers %s", answer.Status)
		}
	}
	return stop, nil
}

func (r relayProcess) Stop(ctx context.Context) error {
	if err := r.Signal(unix.SIGTERM); err != nil {
		return err
	}
	code, err := r.Exit(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("stop relay: exit code %d: %s", code, r.Log())
	}
	return err
}

// relay is the checkout's, once it is built.
func (s *stand) relay() relay { return relay{binary: s.binary} }

func (r relay) config(s *stand, to place, l load) string {
	db := r.db
	if db == "" {
		db = s.db
	}
	config := fmt.Sprintf("source:\n  url: %s\n  slot: bench\n  publication: bench\n%ssink:\n  %s\n", db, r.source, to.sink(l))
	if l.compat {
		config += "  compat:\n    profile: debezium-server\n    options:\n"
		for name, value := range to.debezium() {
			name = strings.TrimPrefix(name, "debezium.")
			if name != "sink.type" && !strings.HasPrefix(name, "sink.kafka.") && !strings.HasPrefix(name, "sink.rabbitmq.connection.") {
				config += fmt.Sprintf("      %s: %q\n", name, value)
			}
		}
		for name, value := range eventRouter(to) {
			config += fmt.Sprintf("      %s: %q\n", name, value)
		}
	}
	if l.ordering != "" {
		config += "delivery:\n  ordering: " + l.ordering + "\n"
	}
	return config
}

// prepare makes slot and publication. The table is empty: no version of the relay has to be told
// what becomes of the rows in it.
func (r relay) prepare(ctx context.Context, s *stand, l load) error {
	l.inbox = false
	to, err := s.broker.place(ctx, s, l)
	if err != nil {
		return err
	}
	made, err := runner.RunCommand(ctx, r.binary, r.config(s, to, l), "init")
	if err == nil && made.Code != 0 {
		err = fmt.Errorf("run cdc-relay init: exit code %d: %s", made.Code, made.Stderr)
	}
	return errors.Join(err, to.close())
}

func (r relay) start(_ context.Context, s *stand, to place, l load) (process, error) {
	var env []string
	if r.earlier {
		env = []string{runner.Earlier}
	}
	p, err := runner.LaunchRelayIn(env, r.binary, r.config(s, to, l))
	return relayProcess{p}, err
}

// debezium is Debezium Server with the Outbox Event Router.
type debezium struct {
	settings map[string]string // of its connector, besides the defaults
	dir      string            // where it keeps its place in the slot
}

// tuned are the settings by which Debezium is quickest here.
var tuned = map[string]string{
	"poll.interval.ms": "10", "offset.flush.interval.ms": "1000", "max.batch.size": "8192", "max.queue.size": "32768",
}

// prepare gives it a slot and a place in it: without one it begins where it finds the WAL, and
// would leave a backlog out.
func (d *debezium) prepare(ctx context.Context, s *stand, l load) (err error) {
	if err := s.exec(ctx, publicationSQL); err != nil {
		return err
	}
	d.dir = ""
	if l.events == 0 {
		return nil
	}
	l.events, l.perTx, l.heard = 100, 10, true
	to, err := s.broker.place(ctx, s, l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	if err := to.consume(ctx); err != nil {
		return err
	}
	return s.with(ctx, d, to, l, func(r process) error {
		if err := r.WaitStreaming(ctx); err != nil {
			return err
		}
		_, err := s.fill(ctx, l)
		if err == nil {
			err = watch(ctx, to, l.events, alive(r))
		}
		return err
	})
}

func (d *debezium) start(_ context.Context, s *stand, to place, _ load) (process, error) {
	source, err := debeziumserver.DebeziumSource(s.db, "outbox")
	if err != nil {
		return nil, err
	}
	delete(source, "poll.interval.ms") // which is the tests'
	source["publication.name"], source["publication.autocreate.mode"] = "bench", "disabled"
	for name, value := range d.settings {
		source[name] = value
	}
	debeziumserver.EventRouter(source, eventRouter(to))
	r, err := debeziumserver.LaunchDebezium(debeziumserver.DebeziumOptions{DB: s.db, Source: source, Sink: to.debezium(), Dir: d.dir, Java: []string{javaHeap()}})
	if err != nil {
		return nil, err
	}
	d.dir = r.Dir()
	return r, nil
}

// eventRouter are the options of the Outbox Event Router.
func eventRouter(to place) map[string]string {
	return map[string]string{"route.topic.replacement": to.routed(), "table.fields.additional.placement": "type:header:eventType"}
}

// javaHeap is the limit that Java sets itself when it is given none: a quarter of the memory.
func javaHeap() string {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return "-Xmx2g"
	}
	return fmt.Sprintf("-Xmx%dm", info.Totalram*uint64(info.Unit)/4>>20)
}

// machine names the versions, the machine and the commit.
func (s *stand) machine(ctx context.Context, report string) ([]string, error) {
	var postgres string
	if err := s.pg.Query(ctx, &postgres, "SELECT current_setting('server_version')"); err != nil {
		return nil, err
	}
	version, err := s.broker.version()
	if err != nil {
		return nil, err
	}
	if report == debeziumReport {
		java, err := debeziumserver.DebeziumJava(ctx)
		if err != nil {
			return nil, err
		}
		version += fmt.Sprintf(", Debezium Server %s on %s with %s", debeziumserver.DebeziumVersion, java, javaHeap())
	}
	commit, err := git(ctx, "rev-parse", "--short=8", "HEAD")
	if err != nil {
		return nil, err
	}
	// the results of earlier reports are written already, and change no build
	changed, err := git(ctx, "status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/bench/results", ":!/docs", ":!/README.md")
	if err != nil {
		return nil, err
	}
	if changed != "" {
		commit += "-dirty"
	}
	memory, err := procBytes("/proc/meminfo", "MemTotal")
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("PostgreSQL %s (fsync off), %s, %s, Linux %s", postgres, version, runtime.Version(), procLine("/proc/sys/kernel/osrelease", "")),
		fmt.Sprintf("%s, %d cores, %.1f GB of memory", procLine("/proc/cpuinfo", "model name"), runtime.NumCPU(), memory/1e9),
		"commit " + commit,
	}, nil
}

// procLine is what a file of /proc says of name, or its whole line.
func procLine(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if name == "" {
			return strings.TrimSpace(line)
		}
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// cpuTime is the time that a process has spent on a processor, user and system, all threads, also
// those that have ended, in µs.
func cpuTime(pid int) (float64, error) {
	var spent unix.Timespec
	// of the process, as clock_getcpuclockid(3) numbers it: exact, where /proc has hundredths of a
	// second
	if err := unix.ClockGettime(int32(^pid<<3|2), &spent); err != nil {
		return 0, fmt.Errorf("read processor time of process %d: %w", pid, err)
	}
	return float64(spent.Nano()) / 1e3, nil
}

// peakRSS is the most memory that a process has had resident so far, in bytes (VmHWM, proc(5)).
func peakRSS(pid int) (float64, error) {
	return procBytes(fmt.Sprintf("/proc/%d/status", pid), "VmHWM")
}

// procBytes is an amount of memory in a file of /proc, in bytes; the kernel's kB are of 1,024.
func procBytes(file, name string) (float64, error) {
	kB, err := strconv.ParseFloat(strings.TrimSuffix(procLine(file, name), " kB"), 64)
	if err != nil {
		return 0, fmt.Errorf("read %s of %s: %w", name, file, err)
	}
	return kB * 1024, nil
}

// alive gives an error when a process has ended.
func alive(all ...process) func() error {
	return func() error {
		if slices.ContainsFunc(all, func(r process) bool { return !r.Running() }) {
			return errors.New("the process has ended")
		}
		return nil
	}
}
