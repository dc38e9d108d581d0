package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// TestMain runs the test beside a database, which the repository's main module prepares.
func TestMain(m *testing.M) {
	if os.Getenv("CDC_RELAY_TEST_BESIDE") != "" {
		os.Exit(m.Run())
	}
	beside := exec.Command("go", append([]string{"run", "github.com/cdc-relay/cdc-relay/internal/devenv/beside", "-database"}, os.Args...)...)
	beside.Stdout, beside.Stderr = os.Stdout, os.Stderr
	if err := beside.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "tests beside servers:", err)
		os.Exit(1)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOrders: what a client sends twice is one order with one event, an id is used once, and what
// cannot be an order is refused before it meets the database.
func TestOrders(t *testing.T) {
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	must(t, err)
	defer pool.Close()
	_, err = pool.Exec(ctx, schema)
	must(t, err)
	s, err := newService(pool)
	must(t, err)
	for _, tc := range []struct {
		body string
		want int
	}{
		{`{"id": "0190163d-8694-739b-aea5-966c26f8ad90", "customer": "me", "item": "lamp"}`, http.StatusCreated},
		{`{"id": "{0190163D-8694-739B-AEA5-966C26F8AD90}", "customer": "me", "item": "lamp"}`, http.StatusOK},
		{`{"id": "0190163d-8694-739b-aea5-966c26f8ad90", "customer": "me", "item": "book"}`, http.StatusConflict},
		{`{"id": "0190163d-8694-739b-aea5-966c26f8ad91", "customer": "me", "item": "book", "number": 7}`, http.StatusCreated},
		{`{"id": "1", "customer": "me", "item": "lamp"}`, http.StatusBadRequest},
		{`{"id": "0190163d-8694-739b-aea5-966c26f8ad92", "customer": "m\u0000e", "item": "lamp"}`, http.StatusBadRequest},
		{`{"id": "0190163d-8694-739b-aea5-966c26f8ad92", "customer": "me", "item": "` + strings.Repeat("x", 101) + `"}`, http.StatusBadRequest},
		{`{"id": "0190163d-8694-739b-aea5-966c26f8ad92", "customer": "", "item": "lamp"}`, http.StatusBadRequest},
		{`{"id": "` + strings.Repeat("x", 64<<10) + `"}`, http.StatusBadRequest},
		{`lamp`, http.StatusBadRequest},
	} {
		answer := httptest.NewRecorder()
		s.post(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", strings.NewReader(tc.body)))
		if answer.Code != tc.want {
			t.Errorf("%.120s: %d, want %d: %s", tc.body, answer.Code, tc.want, answer.Body)
		}
	}
	var orders, events string
	err = pool.QueryRow(ctx, `SELECT (SELECT string_agg(customer || number || item, ' ' ORDER BY number) FROM orders),
		(SELECT string_agg(aggregateid || (payload->>'number') || (payload->>'item'), ' ' ORDER BY payload->>'number') FROM outbox)`).Scan(&orders, &events)
	if want := "me1lamp me2book"; err != nil || orders != want || events != want {
		t.Errorf("orders are %q, events %q, %v, want %q", orders, events, err, want)
	}
}
