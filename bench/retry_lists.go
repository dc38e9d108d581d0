// How long the lists of dead letters take.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// lists is how long an operator waits for a page of any filter over many dead letters.
func (s *rabbitStand) lists(ctx context.Context) (result, error) {
	if err := execSQL(ctx, s.db, fmt.Sprintf(deadLettersSQL, s.size.memory), "ANALYZE cdc_relay.dead_letter"); err != nil {
		return result{}, err
	}
	var pages result
	err := s.withRelay(s.retryTableConfig(runSpec{ordering: "key"}), func(relay *runner.Relay) (err error) {
		if err = ready(ctx, relay); err == nil {
			pages, err = s.pages(ctx, relay)
		}
		return err
	})
	return pages, err
}

func (s *rabbitStand) pages(ctx context.Context, relay *runner.Relay) (result, error) {
	if err := getPage(ctx, relay, url.Values{}); err != nil { // the first one makes the connection
		return result{}, err
	}
	const times = 5
	var worst, once float64
	var slowest string
	for _, filter := range deadLetterFilters(s.size.memory) {
		query, err := url.ParseQuery(filter)
		if err != nil {
			return result{}, err
		}
		var took []float64
		for range times {
			began := time.Now()
			if err := getPage(ctx, relay, query); err != nil {
				return result{}, fmt.Errorf("filter %s: %w", filter, err)
			}
			took = append(took, time.Since(began).Seconds())
		}
		if m := median(took); m > worst {
			worst, slowest = m, filter
		}
		once = max(once, quantile(took, 1))
		s.say("    %s: %s", filter, spread(took, milliseconds))
	}
	return result{
		name: fmt.Sprintf("a page of any list filter over %s dead letters", thousands(s.size.memory)), ours: milliseconds(worst) + " (" + slowest + ")",
		value: 1e3 * worst, unit: "ms", must: 200, aim: 50, pairs: times, note: "the longest of all " + milliseconds(once),
	}, nil
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

// deadLetterFilters are each filter and some together: of all dead letters, of most, of few and of
// none.
func deadLetterFilters(n int) []string {
	at := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n/2) * 2500 * time.Millisecond).Format(time.RFC3339)
	return []string{
		"", "id=" + uuid(int64(n/3)), "id=nobody's", "key=" + deadLetterKey(n/3), "aggregate=order", "aggregate=rare", "type=created",
		"destination=outbox.events/order.created", "destination=outbox.events", "destination=legacy.events/order.created",
		"destination=legacy.events", "destination=nobody/knows", "class=permanent", "class=transient",
		"error=too_large", "error=larger than", "error=nobody has said this", "state=open", "state=discarded", "from=" + at, "to=" + at,
		"key=" + deadLetterKey(n/5) + "&state=replayed", "class=permanent&error=larger than&state=discarded",
	}
}

func deadLetterKey(i int) string { return fmt.Sprintf("customer-%d", i/10) }

// deadLettersSQL writes so many dead letters, spread over a month, as the relay does.
const deadLettersSQL = `
INSERT INTO cdc_relay.dead_letter (slot, system_id, incarnation, commit_lsn, idx, n, ordering_group, exchange_or_topic, dest, hash, keyed, ordered, attempts, bytes,
	deferred_at, died_at, closed_at, mirrored_at, state, class, reason, error, destination, route_name, routing_key,
	commit_time, event_time, id, aggregate, key, type, payload_kind, payload)
SELECT 'bench', (SELECT system_identifier::text FROM pg_control_system()), 0, '0/1'::pg_lsn + i, 0, -i - 1, i, 1, 1, i, true, false, 0, 512,
	at, at, CASE WHEN state <> 'open' THEN at END, at, state, 'permanent', 'too_large',
	(ARRAY['message size # is larger than configured max size #', 'a header of # bytes', 'routing key longer than #'])[i %% 3 + 1],
	'exchange "outbox.events"', CASE WHEN i %% 50000 = 9 THEN 'legacy.events' ELSE 'outbox.events' END::bytea, 'order.created'::bytea,
	at, at, lpad(to_hex(i), 32, '0')::uuid::text::bytea, CASE WHEN i %% 100000 = 7 THEN 'rare' ELSE 'order' END::bytea,
	('customer-' || i / 10)::bytea, 'created'::bytea, 0, repeat('x', 512)::bytea
FROM generate_series(0, %d - 1) i,
	LATERAL (SELECT timestamptz '2025-01-01T00:00:00Z' + i * interval '2.5 s' AS at,
		CASE WHEN i %% 10 = 3 THEN 'replayed' WHEN i %% 10000 = 5 THEN 'discarded' ELSE 'open' END AS state) made`
