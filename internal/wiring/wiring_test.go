package wiring

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/relay"
)

// configured loads a configuration with this sink section, in the directory of the test.
func configured(t *testing.T, sink, more string) *config.Config {
	t.Helper()
	must(t, os.WriteFile("relay.yaml", []byte("source: {url: postgres://h/d, slot: shop}\nsink: "+sink+"\n"+more), 0o600))
	c, err := config.Load("relay.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// On Kafka a call is appended as a whole, so the events of a key travel together; commit is one
// lane on both brokers.
func TestOrderingOfTheLine(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		sink, ordering string
		line           relay.Ordering
		oneLane        bool
	}{
		{"{rabbitmq: {}}", "key", relay.Key, false},
		{"{rabbitmq: {}}", "pipelined", relay.Pipelined, false},
		{"{rabbitmq: {}}", "commit", relay.Commit, true},
		{"{kafka: {}}", "key", relay.Pipelined, false},
		{"{kafka: {}}", "pipelined", relay.Pipelined, false},
		{"{kafka: {}}", "commit", relay.Commit, true},
		{"{kafka: {}}", "none", relay.None, false},
	} {
		cfg := configured(t, c.sink, "delivery: {ordering: "+c.ordering+"}\n")
		if got := Ordering(cfg); got != c.line {
			t.Errorf("%s, %s: the line's ordering is %d, want %d", c.sink, c.ordering, got, c.line)
		}
		one := sinkOpening(cfg, zap.NewNop()).OneLane
		if one != c.oneLane {
			t.Errorf("%s, %s: one lane is %v", c.sink, c.ordering, one)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The extra columns are those of headers, properties and templates, each once.
func TestSinkColumns(t *testing.T) {
	t.Chdir(t.TempDir())
	const headers = "outbox: {headers: {tenant: tenant_id, area: region}}\n"
	for sink, want := range map[string]string{
		"{kafka: {topic: 'x.{column:region}'}}":                                             "region tenant_id",
		"{rabbitmq: {exchange: '{column:shop}', properties: {priority: urgency}}}":          "region shop tenant_id urgency",
		"{rabbitmq: {exchange: e, routing_key: 'a.{column:region}.{column:b}.{column:b}'}}": "b region tenant_id",
	} {
		if got := strings.Join(SinkColumns(configured(t, sink, headers)), " "); got != want {
			t.Errorf("%s: the columns are %q, want %q", sink, got, want)
		}
	}
}

func TestLogLines(t *testing.T) {
	for _, c := range []struct{ format, want string }{
		{"json", `{"level":"warn","time":"2026-11-20T12:00:00.000000Z","msg":"broker unavailable"}` + "\n"},
		{"console", "12:00:00.000  warn  broker unavailable\n"},
	} {
		line, err := newEncoder(c.format).EncodeEntry(zapcore.Entry{Level: zapcore.WarnLevel, Time: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Message: "broker unavailable"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if line.String() != c.want {
			t.Errorf("%s: %q, want %q", c.format, line, c.want)
		}
	}
}

func TestLogLevels(t *testing.T) {
	for name, want := range map[string]zapcore.Level{"debug": zapcore.DebugLevel, "info": zapcore.InfoLevel, "warn": zapcore.WarnLevel, "error": zapcore.ErrorLevel} {
		log := NewLogger(config.Log{Level: name, Format: "json"}, nil)
		if !log.Core().Enabled(want) || log.Core().Enabled(want-1) {
			t.Errorf("%s gives %s", name, log.Level())
		}
	}
}

// Of the log the last warnings and errors are kept, each to a length, whatever the level is.
func TestRecentLog(t *testing.T) {
	recent := &RecentLog{}
	log := NewLogger(config.Log{Level: "error", Format: "json"}, recent)
	log.Info("not kept")
	for i := range 2 * recentLines {
		log.Warn(fmt.Sprintf("line %d", i), zap.String("why", "a\x1b]0;x\a\n"+strings.Repeat("é", recentBytes)))
	}
	lines := recent.Lines()
	if len(lines) != recentLines || !strings.Contains(lines[0], "  warn  line 20  {") || !strings.Contains(lines[recentLines-1], "line 39") {
		t.Errorf("%d lines are kept, from %q", len(lines), lines)
	}
	for _, line := range lines {
		if len(line) > recentBytes+8 || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%d bytes are kept as %q", len(line), line)
		}
	}
}

// A line that comes again takes the place of its former one, whatever it counts or measures. After
// a redact no line names an event.
func TestRecentLogRepeats(t *testing.T) {
	recent := &RecentLog{}
	log := NewLogger(config.Log{Level: "error", Format: "json"}, recent)
	log = log.With(zap.String("slot", "s"))
	log.Warn("first")
	for i := range 5 {
		log.Warn("broker unavailable", zap.Duration("away", time.Duration(i)*time.Minute), zap.Int("n", i), zap.String("reason", "refused"))
	}
	log.Warn("event became a dead letter", zap.String("event_id", "7"), zap.Error(errors.New("of its payload")))
	log.Warn("event became a dead letter", zap.String("event_id", "8"))
	log.Warn("broker unavailable", zap.Duration("away", time.Hour), zap.String("reason", "another"))
	lines := recent.Lines()
	if len(lines) != 5 || !strings.Contains(lines[0], "first") || !strings.Contains(lines[1], `"away": "4m0s"`) || !strings.Contains(lines[3], `"event_id": "8"`) || !strings.Contains(lines[4], "another") {
		t.Errorf("%q", lines)
	}
	recent.ForgetEvents()
	if lines := recent.Lines(); len(lines) != 3 || strings.Contains(strings.Join(lines, ""), "event_id") {
		t.Errorf("after a redact: %q", lines)
	}
}

// Texts of brokers and of events cannot write to the terminal that shows the log.
func TestLogHasNoControlCharacters(t *testing.T) {
	const attack = "a\x1b]0;x\a \u009b31m \x7f \u202e \r\n{} \xff\x9b"
	for _, format := range []string{"json", "console"} {
		var out bytes.Buffer
		log := zap.New(zapcore.NewCore(newEncoder(format), logOutput(&out), zap.InfoLevel)).Named(attack).With(zap.String("host", attack))
		log.Warn("refused", zap.Error(errors.New(attack)), zap.String(attack, attack), zap.ByteString("raw", []byte(attack)), zap.Any("list", []string{attack}))
		line, rest, _ := strings.Cut(out.String(), "\n")
		if format == "json" && rest != "" {
			t.Errorf("%s: more than one line: %q", format, rest)
		}
		if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 || !utf8.ValidString(out.String()) {
			t.Errorf("%s: %q", format, line)
		}
	}
}

// A flood of one message is logged as a few lines a second. Other messages are not affected.
func TestLogIsSampledByMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		log := zap.New(sampled(core))
		for range 1000 {
			log.Warn("destination paused")
		}
		log.Error("stopped")
		if n := logs.FilterMessage("destination paused").Len(); n != linesPerSecond {
			t.Errorf("%d lines of a flood in a second, want %d", n, linesPerSecond)
		}
		if logs.FilterMessage("stopped").Len() != 1 {
			t.Error("another message is concerned")
		}
	})
}

// A relay is linked only by an address that leads to a server and is nothing else.
func TestRelay(t *testing.T) {
	for text, want := range map[string]ops.Relay{
		"relay-0 pid 7":                                {Name: "relay-0 pid 7"},
		"relay-0 pid 7 at https://relay-0:8464":        {Name: "relay-0 pid 7", Address: "https://relay-0:8464"},
		"relay-0 pid 7 at http://[::1]:8464/a":         {Name: "relay-0 pid 7", Address: "http://[::1]:8464/a"},
		"relay-0 pid 7 at javascript:alert(1)":         {Name: "relay-0 pid 7"},
		"relay-0 pid 7 at https://u:p@relay-0":         {Name: "relay-0 pid 7"},
		"relay-0 pid 7 at https://relay-0/\"onclick=x": {Name: "relay-0 pid 7"},
		"relay-0 pid 7 at ":                            {Name: "relay-0 pid 7"},
	} {
		if got := Relay(text); *got != want {
			t.Errorf("%s: %+v", text, *got)
		}
	}
	if Relay("") != nil {
		t.Error("nobody leads, and somebody is named")
	}
}
