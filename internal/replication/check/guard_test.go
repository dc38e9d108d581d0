package check

import (
	"strings"
	"testing"
	"time"
)

// What the guard costs is told in numbers, and what is not known is said.
func TestEstimateOfTheGuard(t *testing.T) {
	const day = 86400
	for _, c := range []struct {
		name   string
		share  outboxShare
		costly bool
		says   string
	}{
		{
			"a tenth",
			outboxShare{inserts: 1e6, width: 1972, wal: 20e9, rowsFor: day, walFor: day, statisticsOf: 24 * time.Hour},
			false,
			"the outbox's rows are about 10% of the WAL: deferring an event frees about 19 KiB of WAL and takes about 3024 B in the retry table, by the statistics of the last 24h0m0s",
		},
		{"counters of different times", outboxShare{inserts: 1e6, width: 1972, wal: 200e9, rowsFor: day, walFor: 10 * day}, false, "about 10% of the WAL"},
		{
			"hardly anything else",
			outboxShare{inserts: 1e6, width: 1972, wal: 2.5e9, rowsFor: day, walFor: day, statisticsOf: 100 * time.Hour},
			true,
			"about 80% of the WAL: deferring an event frees about 2500 B of WAL and takes about 3024 B in the retry table, by the statistics of the last 4 days: the guard would cost more disk than it frees",
		},
		{"no insert", outboxShare{width: 1972, wal: 1e9, rowsFor: day, walFor: day}, false, "no insert into the outbox"},
		{"not analysed", outboxShare{inserts: 5, wal: 1e9, rowsFor: day, walFor: day}, false, "no statistics of the outbox's columns"},
		// 18 bytes of a row say where its payload is
		{"payloads in TOAST", outboxShare{inserts: 1e6, width: 172, chunks: 1e7, wal: 100e9, rowsFor: day, walFor: day}, false, "about 20% of the WAL: deferring an event frees about 97 KiB of WAL and takes about 20 KiB"},
		{"messages", outboxShare{hasNoOutbox: true}, false, "events are messages"},
	} {
		if detail, costly := c.share.estimate(); costly != c.costly || !strings.Contains(detail, c.says) {
			t.Errorf("%s: %q, costly %t; want %q", c.name, detail, costly, c.says)
		}
	}
}
