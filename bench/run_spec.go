// The events of a run: which keys they have, and how they come into the table.
package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// runSpec is what one throughput run does.
type runSpec struct {
	keys      keyset
	events    int
	rowsPerTx int
	payload   int    // bytes of each, as text; 0: payloadSize
	ordering  string // of the relay

	queue string // of RabbitMQ: classic or quorum
	far   bool   // by the way that is 2 ms longer

	partitions int // of the topic of Kafka
}

// connections is how many the relay has to RabbitMQ, and so the bare publisher.
func (l runSpec) connections() int {
	if l.ordering == "commit" { // one lane
		return 1
	}
	return 2
}

func (l runSpec) bytes() int { return cmp.Or(l.payload, payloadSize) }

// keyset is a distribution of keys.
type keyset struct {
	count int
	zipf  float64 // exponent of the frequencies; 0: the keys take turns
}

func (k keyset) String() string {
	switch {
	case k.zipf > 0:
		return fmt.Sprintf("zipf%.1f", k.zipf)
	case k.count == 1:
		return "1key"
	default:
		return fmt.Sprintf("%dkeys", k.count)
	}
}

// draw is the keys of n events, the same at every call.
func (k keyset) draw(n int) []string {
	names := make([]string, k.count)
	for i := range names {
		names[i] = "customer-" + strconv.Itoa(i)
	}
	var zipf *rand.Zipf
	if k.zipf > 0 {
		zipf = rand.NewZipf(rand.New(rand.NewPCG(1, 2)), k.zipf, 1, uint64(k.count-1))
	}
	keys := make([]string, n)
	for i := range keys {
		if zipf != nil {
			keys[i] = names[zipf.Uint64()]
		} else {
			keys[i] = names[i%k.count]
		}
	}
	return keys
}

// payloadSize is the bytes of a payload, as text, where nothing else is said.
const payloadSize = 512

// fillSQL makes what fill uses. The payload is size bytes in the form in which jsonb is written
// out.
const fillSQL = `
CREATE UNLOGGED TABLE fill_key (i bigint PRIMARY KEY, key text NOT NULL);
CREATE PROCEDURE fill(first bigint, n bigint, rows_per_tx bigint, size int, done bigint DEFAULT 0) LANGUAGE plpgsql AS $$
BEGIN
	WHILE done < n LOOP
		INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT lpad(to_hex(first + i), 32, '0')::uuid, 'order', key, 'created',
			('{"n": ' || i || ', "pad": "' || repeat('x', size - 18 - length(i::text)) || '"}')::jsonb
		FROM fill_key WHERE i >= done AND i < done + rows_per_tx ORDER BY i;
		COMMIT;
		done := done + rows_per_tx;
	END LOOP;
END $$`

// appendPayload is the payload of event i as fill writes it.
func appendPayload(b []byte, i, size int) []byte {
	end := len(b) + size
	b = append(b, `{"n": `...)
	b = strconv.AppendInt(b, int64(i), 10)
	b = append(b, `, "pad": "`...)
	for len(b) < end-2 {
		b = append(b, 'x')
	}
	return append(b, `"}`...)
}

// nextRun numbers a run: the first of the ids that its events have.
func (s *stand) nextRun() (first int64) {
	s.runs++
	return s.runs << 32
}

// fill empties the table and commits the events of l in transactions of rowsPerTx rows; first is
// the id of the first one.
func (s *stand) fill(ctx context.Context, l runSpec) (first int64, err error) {
	return s.fillWith(ctx, l, func(first int64) string {
		return fmt.Sprintf("CALL fill(%d, %d, %d, %d)", first, l.events, l.rowsPerTx, l.bytes())
	})
}

// fillWith is fill by another statement.
func (s *stand) fillWith(ctx context.Context, l runSpec, call func(first int64) string) (first int64, err error) {
	first = s.nextRun()
	conn, err := pgx.Connect(ctx, s.db)
	if err != nil {
		return 0, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "TRUNCATE outbox, fill_key"); err != nil {
		return 0, fmt.Errorf("empty the table: %w", err)
	}
	keys := l.keys.draw(l.events)
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"fill_key"}, []string{"i", "key"},
		pgx.CopyFromSlice(len(keys), func(i int) ([]any, error) { return []any{int64(i), keys[i]}, nil }))
	if err != nil {
		return 0, fmt.Errorf("copy keys: %w", err)
	}
	for _, sql := range []string{"ANALYZE fill_key", call(first)} {
		// a procedure that commits must stand alone
		if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return 0, fmt.Errorf("%s: %w", sql, err)
		}
	}
	return first, nil
}
