// This file is about the pages that say how a service writes events, and what it shares with the
// relay.
package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	kafkarecord "github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
	rabbitmessage "github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"

	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/outbox"
)

// Each piece of Go in these pages stands in an example of the packages, line for line, where it is
// compiled and run.
func TestGoOfThePagesIsRun(t *testing.T) {
	t.Parallel()
	var examples strings.Builder
	for _, dir := range []string{"outbox", "inbox"} {
		must(t, filepath.WalkDir(filepath.Join("../..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			examples.WriteString(unindented(string(text)))
			return err
		}))
	}
	blocks := 0
	for _, page := range []string{"README.md", "docs/writing.md"} {
		for _, block := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(document(t, page), -1) {
			if blocks++; !strings.Contains(examples.String(), unindented(block[1])) {
				t.Errorf("%s: no example has\n%s", page, block[1])
			}
		}
	}
	if blocks < 4 {
		t.Errorf("%d pieces of Go were found", blocks)
	}
}

func unindented(code string) string {
	return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(code, "")
}

// The SQL for other languages writes what the package writes, into the table that it creates.
func TestDocumentedSQL(t *testing.T) {
	t.Parallel()
	r := bare(t)
	r.exec(outbox.Schema() + "; CREATE TABLE orders (id text PRIMARY KEY, total int NOT NULL)")
	sql := regexp.MustCompile("(?ms)^```sql\n(.*?)^```$").FindAllStringSubmatch(document(t, "docs/writing.md"), -1)
	if len(sql) != 1 {
		t.Fatalf("the page has %d pieces of SQL", len(sql))
	}
	r.exec(sql[0][1])
	if got := ask[string](r, `SELECT aggregatetype || aggregateid || type || payload FROM outbox JOIN orders ON orders.id = aggregateid`); got != `order42created{"id": "42", "total": 1250}` {
		t.Errorf("the row is %s", got)
	}
}

// A header that the relay would drop is refused when it is written: the lists are the same.
func TestHeadersThatTheRelayDropsAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Concat(sink.ReservedHeaders, rabbitmessage.OwnHeaders, kafkarecord.OwnHeaders, rabbitmessage.SteeringHeaders) {
		ev := outbox.Event{Aggregate: "order", Type: "created", Headers: map[string]string{name: "1"}}
		if err := outbox.Write(t.Context(), nil, ev); !errors.Is(err, outbox.ErrInvalid) {
			t.Errorf("header %s: %v", name, err)
		}
	}
	for _, name := range rabbitmessage.SteeringHeaders {
		if _, err := outbox.New(outbox.Config{AllowHeaders: []string{name}}); err != nil {
			t.Errorf("header %s cannot be allowed: %v", name, err)
		}
	}
}
