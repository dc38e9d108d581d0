// How long the lists of dead letters take.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// lists is what an operator waits for a page of any filter over many dead letters, and a scraper
// for the metrics meanwhile.
func (s *rabbitStand) lists(ctx context.Context) ([]result, error) {
	if err := s.copyDeadLetters(ctx, s.size.memory); err != nil {
		return nil, err
	}
	relay, err := s.startLive(ctx, s.retryTableConfig(runSpec{ordering: "key"}))
	if err != nil {
		return nil, err
	}
	pages, err := s.pages(ctx, relay)
	if err != nil {
		return nil, errors.Join(err, relay.Kill())
	}
	scrapes, err := s.scrapes(ctx, relay)
	if err != nil {
		return nil, errors.Join(err, relay.Kill())
	}
	return []result{pages, scrapes}, s.stopRelay(relay)
}

func (s *rabbitStand) pages(ctx context.Context, relay *runner.Relay) (result, error) {
	if err := getPage(ctx, relay, url.Values{}); err != nil { // the first one makes the connection
		return result{}, err
	}
	const times = 5
	var worst, once float64
	var slowest string
	for name, query := range deadLetterFilters(s.size.memory) {
		var took []float64
		for range times {
			began := time.Now()
			if err := getPage(ctx, relay, query); err != nil {
				return result{}, fmt.Errorf("filter %s: %w", name, err)
			}
			took = append(took, time.Since(began).Seconds())
		}
		if m := median(took); m > worst {
			worst, slowest = m, name
		}
		once = max(once, quantile(took, 1))
		s.say("    %s: %s", name, spread(took, milliseconds))
	}
	return result{
		name: fmt.Sprintf("a page of any list filter over %s dead letters", thousands(s.size.memory)), ours: milliseconds(worst) + " (" + slowest + ")",
		value: 1e3 * worst, unit: "ms", must: 200, aim: 50, pairs: times, note: "the longest of all " + milliseconds(once),
	}, nil
}

// scrapes is how long /metrics takes, once it has the dead letters.
func (s *rabbitStand) scrapes(ctx context.Context, relay *runner.Relay) (result, error) {
	var open int
	if err := s.ask(ctx, &open, "SELECT count(*) FROM cdc_relay.dead_letter WHERE state = 'open'"); err != nil {
		return result{}, err
	}
	scrape := func() (body string, err error) {
		code, body, err := relay.Get(ctx, "/metrics")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("/metrics answers %d: %.300s", code, body)
		}
		return body, err
	}
	told := regexp.MustCompile(`(?m)^outbox_dead_letters (\S+)$`)
	err := await(ctx, relay, fmt.Sprintf("%d dead letters in /metrics", open), func() (int, bool, error) {
		body, err := scrape()
		found := told.FindStringSubmatch(body)
		if err != nil || found == nil {
			return 0, false, err
		}
		n, err := strconv.ParseFloat(found[1], 64)
		return int(n), int(n) == open, err
	})
	if err != nil {
		return result{}, err
	}
	const times = 101
	var took []float64
	for range times {
		began := time.Now()
		if _, err := scrape(); err != nil {
			return result{}, err
		}
		took = append(took, time.Since(began).Seconds())
	}
	return result{
		name: fmt.Sprintf("/metrics with %s dead letters, %s of them open", thousands(s.size.memory), thousands(open)), ours: spread(took, milliseconds),
		value: 1e3 * median(took), unit: "ms", must: 10, aim: 5, pairs: times,
	}, nil
}

// deadLetterFilters are queries of each filter alone, and some of two: of many dead letters, of
// few, and of none.
func deadLetterFilters(n int) map[string]url.Values {
	at := deadLetterTime(n / 2).UTC().Format(time.RFC3339)
	of := func(pairs ...string) url.Values {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Set(pairs[i], pairs[i+1])
		}
		return v
	}
	return map[string]url.Values{
		"none":                of(),
		"id":                  of("id", deadLetterID(n/3)),
		"no such id":          of("id", "nobody's"),
		"key":                 of("key", deadLetterKey(n/3)),
		"aggregate":           of("aggregate", "order"),
		"rare aggregate":      of("aggregate", "rare"),
		"type":                of("type", "created"),
		"destination":         of("destination", "outbox.events/order.created"),
		"exchange":            of("destination", "outbox.events"),
		"rare destination":    of("destination", "legacy.events/order.created"),
		"rare exchange":       of("destination", "legacy.events"),
		"no such destination": of("destination", "nobody/knows"),
		"class":               of("class", "permanent"),
		"no such class":       of("class", "transient"),
		"reason":              of("error", "too_large"),
		"words":               of("error", "larger than"),
		"no such words":       of("error", "nobody has said this"),
		"state":               of("state", "open"),
		"rare state":          of("state", "discarded"),
		"from":                of("from", at),
		"to":                  of("to", at),
		"key and state":       of("key", deadLetterKey(n/5), "state", "replayed"),
		"class and words":     of("class", "permanent", "error", "larger than", "state", "discarded"),
	}
}

func getPage(ctx context.Context, relay *runner.Relay, query url.Values) error {
	query.Set("limit", "50")
	code, body, err := relay.Get(ctx, "/api/v1/dead-letters?"+query.Encode())
	if err != nil {
		return err
	}
	if code != http.StatusOK || !json.Valid([]byte(body)) {
		return fmt.Errorf("answer %d: %.300s", code, body)
	}
	return nil
}

func deadLetterID(i int) string  { return uuid(int64(i)) }
func deadLetterKey(i int) string { return fmt.Sprintf("customer-%d", i/10) }

// deadLetterTime spreads the dead letters over a month.
func deadLetterTime(i int) time.Time {
	return time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * 2500 * time.Millisecond)
}

// copyDeadLetters writes dead letters as the relay does.
func (s *stand) copyDeadLetters(ctx context.Context, n int) error {
	conn, err := pgx.Connect(ctx, s.db)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var system string
	if err := conn.QueryRow(ctx, "SELECT system_identifier::text FROM pg_control_system()").Scan(&system); err != nil {
		return fmt.Errorf("read system id: %w", err)
	}
	words := []string{"message size # is larger than configured max size #", "a header of # bytes", "routing key longer than #"}
	columns := []string{
		"slot", "system_id", "incarnation", "commit_lsn", "idx", "n", "ordering_group", "exchange_or_topic", "dest", "hash", "keyed", "ordered", "attempts", "bytes",
		"deferred_at", "died_at", "closed_at", "mirrored_at", "state", "class", "reason", "error", "destination", "route_name", "routing_key",
		"commit_time", "event_time", "id", "aggregate", "key", "type", "payload_kind", "payload",
	}
	payload := appendPayload(nil, 1, payloadSize)
	names := strings.Join(columns, ", ")
	staging := "CREATE TEMP TABLE dead_letters_tmp AS SELECT " + names + " FROM cdc_relay.dead_letter LIMIT 0; ALTER TABLE dead_letters_tmp ALTER commit_lsn TYPE text"
	if _, err := conn.PgConn().Exec(ctx, staging).ReadAll(); err != nil {
		return fmt.Errorf("make table: %w", err)
	}
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"dead_letters_tmp"}, columns, pgx.CopyFromSlice(n, func(i int) ([]any, error) {
		aggregate, state, kind := "order", "open", "created"
		if i%100_000 == 7 {
			aggregate = "rare"
		}
		switch {
		case i%10 == 3:
			state = "replayed"
		case i%10_000 == 5:
			state = "discarded"
		}
		name := []byte(exchange)
		if i%50_000 == 9 {
			name = []byte("legacy.events")
		}
		id, key, at := []byte(deadLetterID(i)), []byte(deadLetterKey(i)), deadLetterTime(i)
		var closed any
		if state != "open" {
			closed = at
		}
		return []any{
			"bench", system, int64(0), fmt.Sprintf("0/%X", i+1), int64(0), int64(-i - 1), int64(i), int64(1), int64(1), int64(i), true, false, 0, int64(len(payload)),
			at, at, closed, at, state, "permanent", "too_large", words[i%len(words)], `exchange "` + exchange + `"`, name, []byte("order.created"),
			at, at, id, []byte(aggregate), key, []byte(kind), int16(0), payload,
		}, nil
	}))
	if err == nil {
		_, err = conn.Exec(ctx, "INSERT INTO cdc_relay.dead_letter ("+names+") SELECT "+strings.Replace(names, "commit_lsn", "commit_lsn::pg_lsn", 1)+" FROM dead_letters_tmp")
	}
	if err != nil {
		return fmt.Errorf("write dead letters: %w", err)
	}
	return execSQL(ctx, s.db, "ANALYZE cdc_relay.dead_letter")
}
