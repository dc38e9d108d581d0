// What a start costs the server, counted in its log: statements and connections.

package replication

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
)

// A start of a slot that is ready, and the first one, ask no more than this before the first row
// may come, over one replication connection. Each statement that is new costs a session without
// catalogs in memory a millisecond or ten, on each of many starts. If this fails for a reason,
// write the counts into it.
func TestStatementsOfAStart(t *testing.T) {
	b := shared(t)
	b.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET log_statement = ''all''', current_database());
		EXECUTE format('ALTER DATABASE %I SET log_replication_commands = on', current_database()); END $$`)
	for _, start := range []struct {
		name          string
		stream, leads int // statements of the replication connection; of the one that leads
	}{
		{"first", 4, 0}, // those of leads depend on which roles there are
		{"ready", 3, 16},
	} {
		before := len(servers.OwnPostgres(t).Log())
		b.startAndStop()
		statements := statementsOf(servers.OwnPostgres(t).Log()[before:], b.cfg.ApplicationName())
		var streams, leads [][]string
		for _, of := range statements {
			switch all := strings.Join(of, "\n"); {
			case strings.Contains(all, "IDENTIFY_SYSTEM"):
				streams = append(streams, of)
			case strings.Contains(all, "SET epoch = epoch + 1"):
				leads = append(leads, of)
			}
		}
		if len(streams) != 1 || len(leads) != 1 {
			t.Fatalf("%s: %d replication connections and %d leaders, want one of each: %q", start.name, len(streams), len(leads), statements)
		}
		for i, sql := range leads[0] {
			if strings.Contains(sql, "pg_try_advisory_lock_shared") { // the term has begun
				leads[0] = leads[0][:i]
				break
			}
		}
		if len(streams[0]) != start.stream || start.leads != 0 && len(leads[0]) != start.leads {
			t.Errorf("%s: %d statements of the replication connection and %d before the term, want %d and %d:\n%s\n\n%s", start.name,
				len(streams[0]), len(leads[0]), start.stream, start.leads, strings.Join(streams[0], "\n"), strings.Join(leads[0], "\n"))
		}
	}
}

// startAndStop has a stream begin, and end in order.
func (b *bench) startAndStop() {
	b.t.Helper()
	s, err := New(b.cfg)
	await.Must(b.t, err)
	defer s.Close()
	s.preparedFor = time.Hour // a machine may be slow
	reading, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(reading, context.Background()) }()
	await.Until(b.t, "the stream to begin", func() bool { return s.Snapshot().Phase == slot.Streaming || len(ended) > 0 })
	stop()
	await.Must(b.t, <-ended)
	b.waitFree()
}

// statementsOf are the first lines of the statements that the sessions of an application have
// begun, by process.
func statementsOf(log, application string) map[string][]string {
	line := regexp.MustCompile(`(?m)^[^[\n]* \[(\d+)\] ` + regexp.QuoteMeta(application) + ` LOG:  (?:statement|execute [^:]*|received replication command): (.*)$`)
	all := map[string][]string{}
	for _, found := range line.FindAllStringSubmatch(log, -1) {
		all[found[1]] = append(all[found[1]], found[2])
	}
	return all
}
