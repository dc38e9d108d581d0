package inbox

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/?pool_max_conns=4")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	valid := func() Config {
		return Config{Service: "notifier", Pool: pool, Handler: func(context.Context, pgx.Tx, Message) error { return nil }, Registerer: prometheus.NewRegistry()}
	}
	in, err := New(valid())
	if err != nil {
		t.Fatal(err)
	}
	if c := in.cfg; c.Concurrency != 4 || len(c.Levels) != 3 || c.Timeout != 30*time.Second || c.Grace != 10*time.Second || c.Keep != 720*time.Hour || c.Table != "processed_messages" {
		t.Errorf("presets: %+v", c)
	}
	db := sql.OpenDB(nil) // nothing connects
	t.Cleanup(func() { _ = db.Close() })
	for most, concurrency := range map[int]int{0: max(4, runtime.NumCPU()), 3: 3} {
		db.SetMaxOpenConns(most)
		in, err := New(Config{Service: "notifier", DB: db, HandlerSQL: func(context.Context, *sql.Tx, Message) error { return nil }, Registerer: prometheus.NewRegistry()})
		if err != nil || in.cfg.Concurrency != concurrency {
			t.Errorf("of %d connections: %+v, %v", most, in, err)
		}
	}
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "cdc_relay_inbox_messages_total", Help: "Another."}))
	for want, change := range map[string]func(*Config){
		`Service is ""`:          func(c *Config) { c.Service = "" },
		`Service is "a b"`:       func(c *Config) { c.Service = "a b" },
		"Service is":             func(c *Config) { c.Service = strings.Repeat("a", 101) },
		"want one of them":       func(c *Config) { c.Pool = nil },
		"Pool and DB":            func(c *Config) { c.DB = db },
		"Handler goes with Pool": func(c *Config) { c.Handler = nil },
		"HandlerSQL goes with":   func(c *Config) { c.HandlerSQL = func(context.Context, *sql.Tx, Message) error { return nil } },
		"Timeout is 30ns":        func(c *Config) { c.Timeout = 30 },
		"Grace is 10ns":          func(c *Config) { c.Grace = 10 },
		"want at least 1h0m0s":   func(c *Config) { c.Keep = 59 * time.Minute },
		"want at least 768h0m0s": func(c *Config) { c.Levels = []time.Duration{time.Hour, 383 * time.Hour} },
		"negative":               func(c *Config) { c.Keep = -1 },
		"has 4 connections":      func(c *Config) { c.Concurrency = 5 },
		"Levels has 1.5s":        func(c *Config) { c.Levels = []time.Duration{time.Second, 1500 * time.Millisecond} },
		"Levels has 0s":          func(c *Config) { c.Levels = []time.Duration{0} },
		`Table is "a.b.c"`:       func(c *Config) { c.Table = "a.b.c" },
		`Table is "a."`:          func(c *Config) { c.Table = "a." },
		"register metrics":       func(c *Config) { c.Registerer = taken },
	} {
		cfg := valid()
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.HasPrefix(err.Error(), "inbox: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// A filter chooses what matches all that is set.
func TestReplayFilter(t *testing.T) {
	t.Parallel()
	for _, f := range []ReplayFilter{{}, {ID: "1"}, {Type: "created"}, {Class: Panic}, {ID: "1", Type: "created", Class: Panic, Limit: 1}} {
		if err := f.Check(); err != nil || !f.Matches("1", "created", Panic) {
			t.Errorf("%+v does not match: %v", f, err)
		}
	}
	for _, f := range []ReplayFilter{{ID: "2"}, {Type: "paid"}, {Class: Rejected}, {ID: "1", Type: "created", Class: Permanent}} {
		if f.Matches("1", "created", Panic) {
			t.Errorf("%+v matches", f)
		}
	}
	if err := (ReplayFilter{Limit: -1}).Check(); err == nil || !strings.Contains(err.Error(), "Limit is -1") {
		t.Errorf("a negative limit: %v", err)
	}
}

func TestLevelName(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Second: "1s", 30 * time.Second: "30s", time.Minute: "1m", 90 * time.Second: "1m30s", 5 * time.Minute: "5m", 10 * time.Minute: "10m",
		time.Hour: "1h", 20 * time.Hour: "20h", 90 * time.Minute: "1h30m", time.Hour + 5*time.Second: "1h0m5s", 24 * time.Hour: "24h",
	} {
		if got := LevelName(d); got != want {
			t.Errorf("LevelName(%s) = %s, want %s", d, got, want)
		}
		if back, err := time.ParseDuration(LevelName(d)); err != nil || back != d {
			t.Errorf("%s is read as %s: %v", LevelName(d), back, err)
		}
	}
}

// A reason is a header: valid text, and not long.
func TestReason(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"short", strings.Repeat("ä", 600), "x" + strings.Repeat("ä", 600), "a\x00b", "a\xff\xfeb", strings.Repeat("\xffx", 2000), ""} {
		got := reasonOf(errors.New(text))
		if len(text) > longestReason && len(got) < longestReason-3 {
			t.Errorf("reason of %d bytes is cut to %d", len(text), len(got))
		}
		if len(got) > longestReason || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Errorf("reason of %d bytes %.10q: %d bytes %.10q", len(text), text, len(got), got)
		}
	}
}

// A handler that goes on after ctx has ended is named, again each minute, and no more once it has
// returned.
func TestDeafHandler(t *testing.T) {
	t.Parallel()
	registered, err := newMetrics(prometheus.NewRegistry(), "notifier", nil)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		in := &Inbox{metrics: registered, cfg: Config{Timeout: 30 * time.Second, Log: slog.New(slog.NewTextHandler(&said, nil))}}
		for runs, lines := range map[time.Duration]int{34 * time.Second: 0, 36 * time.Second: 1, 156 * time.Second: 3} {
			said.Reset()
			tx := pgxTx{handler: func(context.Context, pgx.Tx, Message) error { <-time.After(runs); return nil }}
			if err := in.callHandler(t.Context(), tx, Message{ID: "7"}); err != nil {
				t.Error(err)
			}
			<-time.After(time.Hour)
			synctest.Wait()
			if n := strings.Count(said.String(), "still runs"); n != lines || n != strings.Count(said.String(), "event_id=7") {
				t.Errorf("a handler that runs for %s: %d lines, want %d:\n%s", runs, n, lines, said.String())
			}
		}
	})
}
