// The live load: rows committed one by one at a steady rate, each with the time just before its
// COMMIT.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
)

const (
	liveWriters = 4
	liveKeys    = 1000
	burstEvery  = 5 * time.Second
	burstRows   = 2000
	hotKey      = "hot"
	settling    = time.Second // at the beginning of a phase; not counted
)

// phase writes rows at a steady rate for a while; with bursts also burstRows rows of one key in one
// transaction every burstEvery.
type phase struct {
	db     string
	first  int64 // id of the first row
	rate   int   // rows a second
	length time.Duration
	bursts bool

	payload int // bytes of each, as text; 0: payloadSize

	at []int64 // of each row, Unix nanoseconds
}

// run writes. It returns the number of all rows, of bursts too.
func (p *phase) run(ctx context.Context) (rows int, err error) {
	p.at = make([]int64, int(p.length.Seconds()*float64(p.rate)))
	start := time.Now().Add(20 * time.Millisecond)
	errs := make([]error, liveWriters+1)
	var all sync.WaitGroup
	for w := range liveWriters {
		all.Go(func() { errs[w] = p.write(ctx, start, w) })
	}
	rows = len(p.at)
	if p.bursts {
		times := burstTimes(p.length)
		rows += len(times) * burstRows
		all.Go(func() { errs[liveWriters] = p.burst(ctx, start, times) })
	}
	all.Wait()
	return rows, errors.Join(errs...)
}

// written is the rate at which the rows were committed.
func (p *phase) written() float64 {
	return float64(len(p.at)-1) / (float64(p.at[len(p.at)-1]-p.at[0]) / 1e9)
}

// burstTimes is when bursts happen: half way into each burstEvery, so that each has the time to
// end.
func burstTimes(length time.Duration) (times []time.Duration) {
	for at := min(burstEvery, length) / 2; at < length; at += burstEvery {
		times = append(times, at)
	}
	return times
}

// write is one writer, with every liveWriters-th row.
func (p *phase) write(ctx context.Context, start time.Time, w int) error {
	conn, err := pgconn.Connect(ctx, p.db)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var sql []byte
	for i := w; i < len(p.at); i += liveWriters {
		if err := waitUntil(ctx, start.Add(time.Duration(i)*time.Second/time.Duration(p.rate))); err != nil {
			return err
		}
		sql = append(sql[:0], "BEGIN; INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('"...)
		sql = append(sql, uuid(p.first+int64(i))...)
		sql = append(sql, "', 'order', 'customer-"...)
		sql = strconv.AppendInt(sql, int64(i%liveKeys), 10)
		sql = append(sql, "', 'created', '"...)
		sql = appendPayload(sql, i, cmp.Or(p.payload, payloadSize))
		sql = append(sql, "')"...)
		if _, err := conn.Exec(ctx, string(sql)).ReadAll(); err != nil {
			return fmt.Errorf("insert: %w", err)
		}
		p.at[i] = time.Now().UnixNano()
		if _, err := conn.Exec(ctx, "COMMIT").ReadAll(); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	return nil
}

// burst writes the bursts.
func (p *phase) burst(ctx context.Context, start time.Time, times []time.Duration) error {
	for n, at := range times {
		if err := waitUntil(ctx, start.Add(at)); err != nil {
			return err
		}
		first := p.first + 1<<31 + int64(n*burstRows)
		err := execSQL(ctx, p.db, fmt.Sprintf(`INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
			SELECT lpad(to_hex(%d + i), 32, '0')::uuid, 'order', '%s', 'created', ('{"n": ' || i || ', "pad": "' || repeat('x', 480) || '"}')::jsonb
			FROM generate_series(0, %d) i`, first, hotKey, burstRows-1))
		if err != nil {
			return err
		}
	}
	return nil
}

// waitUntil returns at the moment, or with ctx's error.
func waitUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// latencies are the times from commit to arrival of the phase's rows, without bursts and the first
// second, in seconds. It is an error unless each of the rows arrived once, and those of a key in
// order.
func (p *phase) latencies(arrived []checker.Delivery, rows int) ([]float64, error) {
	return p.latenciesFrom(arrived, rows, int(min(settling, p.length/4).Seconds()*float64(p.rate)))
}

// latenciesFrom is latencies without the rows before one of them.
func (p *phase) latenciesFrom(arrived []checker.Delivery, rows, from int) ([]float64, error) {
	var took []float64
	seen := make(map[int]bool, rows)
	last := map[string]int{}
	for _, d := range arrived {
		i, ok := indexOf(d.ID, p.first)
		if !ok || seen[i] {
			return nil, fmt.Errorf("message %s is of another phase or has come twice", d.ID)
		}
		if before, known := last[d.Key]; known && before > i {
			return nil, fmt.Errorf("message %s of key %s is out of order", d.ID, d.Key)
		}
		seen[i], last[d.Key] = true, i
		if i < len(p.at) && i >= from {
			took = append(took, float64(d.At-p.at[i])/1e9)
		}
	}
	if len(seen) != rows {
		return nil, fmt.Errorf("%d of %d messages have arrived", len(seen), rows)
	}
	return took, nil
}

// losses are what is missing of the phase's rows, and how many came for the first time after a
// later one of their key.
func (p *phase) losses(arrived []checker.Delivery) (losses, error) {
	found := losses{rows: len(p.at)}
	seen, last := make([]bool, len(p.at)), map[string]int{}
	came := 0
	for _, d := range arrived {
		i, ok := indexOf(d.ID, p.first)
		if !ok {
			continue // of another phase
		}
		if i >= len(p.at) {
			return found, fmt.Errorf("message %s is of no row", d.ID)
		}
		if seen[i] {
			continue
		}
		seen[i] = true
		came++
		if before, known := last[d.Key]; known && before > i {
			found.unordered++
		}
		last[d.Key] = i
	}
	found.lost = found.rows - came
	return found, nil
}
