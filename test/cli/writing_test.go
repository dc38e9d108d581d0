// This file is about docs/outbox.md, which says how a service writes events, and about what the
// package outbox shares with the relay.
package cli

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/outbox"
)

// Each piece of Go in the page stands in an example of the package, line for line, where it is
// compiled and run. (TestReadmeIsRun has those of the README.)
func TestDocumentedGo(t *testing.T) {
	t.Parallel()
	var examples strings.Builder
	files, err := filepath.Glob("../../outbox/*_test.go")
	must(t, err)
	// OpenTelemetry is not of the module outbox
	files = append(files, "../../outbox/outboxtest/example_test.go", "written_test.go")
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		examples.WriteString(unindented(string(text)))
	}
	found := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(document(t, "docs/outbox.md"), -1)
	for _, block := range found {
		if !strings.Contains(examples.String(), unindented(block[1])) {
			t.Errorf("no example has\n%s", block[1])
		}
	}
	if len(found) != 4 {
		t.Errorf("the page has %d pieces of Go", len(found))
	}
}

func unindented(code string) string {
	return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(code, "")
}

// The SQL for other languages writes what the package writes, into the table that it creates.
func TestDocumentedSQL(t *testing.T) {
	t.Parallel()
	r := bare(t)
	r.exec(outbox.Schema() + "CREATE TABLE orders (id text PRIMARY KEY, total int NOT NULL)")
	sql := sqlOf(t, "In other languages")
	if len(sql) != 1 {
		t.Fatalf("the section has %d pieces of SQL", len(sql))
	}
	r.exec(sql[0])
	if got := ask[string](r, `SELECT aggregatetype || aggregateid || type || payload FROM outbox JOIN orders ON orders.id = aggregateid`); got != `order42created{"id": "42", "total": 1250}` {
		t.Errorf("the row is %s", got)
	}
}

// sqlOf are the pieces of SQL in a section of docs/outbox.md.
func sqlOf(t *testing.T, heading string) (pieces []string) {
	t.Helper()
	_, section, _ := strings.Cut(document(t, "docs/outbox.md"), "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, found := range regexp.MustCompile("(?ms)^```sql\n(.*?)^```$").FindAllStringSubmatch(section, -1) {
		pieces = append(pieces, found[1])
	}
	return pieces
}

// The SQL that keeps the table small is valid, and sets what it says.
func TestDocumentedHousekeeping(t *testing.T) {
	t.Parallel()
	role := newRole(t, "NOLOGIN")
	r := bare(t)
	r.exec(outbox.Schema())
	for _, sql := range sqlOf(t, "Keep the table small") {
		r.exec(strings.NewReplacer("TO relay;", "TO "+role+";", "$1", "gen_random_uuid()").Replace(sql))
	}
	got := ask[string](r, `SELECT concat(reloptions, ' ', (SELECT defaclacl FROM pg_default_acl), ' ', (SELECT count(*) FROM pg_index WHERE indrelid = c.oid))
		FROM pg_class c WHERE c.oid = 'outbox'::regclass`)
	want := "{autovacuum_vacuum_scale_factor=0,autovacuum_vacuum_threshold=50000,autovacuum_vacuum_cost_delay=0," +
		"autovacuum_vacuum_insert_scale_factor=0,autovacuum_vacuum_insert_threshold=1000000,vacuum_truncate=off} {" + role + "=rwd/postgres} 3"
	if got != want {
		t.Errorf("it sets %s\nwant %s", got, want)
	}
}

// A header that the relay would drop is refused when it is written: the lists are the same.
func TestHeadersThatTheRelayDropsAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Concat(sink.ReservedHeaders, rabbit.OwnHeaders, kafka.OwnHeaders, rabbit.SteeringHeaders) {
		ev := outbox.Event{Aggregate: "order", Type: "created", Payload: 1, Headers: map[string]string{name: "1"}}
		if err := outbox.Write(t.Context(), nil, ev); !errors.Is(err, outbox.ErrInvalid) {
			t.Errorf("header %s: %v", name, err)
		}
	}
	for _, name := range rabbit.SteeringHeaders {
		if _, err := outbox.New(outbox.Config{AllowHeaders: []string{name}}); err != nil {
			t.Errorf("header %s cannot be allowed: %v", name, err)
		}
	}
}
