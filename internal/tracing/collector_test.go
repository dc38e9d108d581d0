// A collector that is slow, refuses or is away does not affect the relay.

package tracing

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// logged is a log whose lines can be read as one text.
func logged() (*zap.Logger, func() string) {
	core, lines := observer.New(zap.DebugLevel)
	return zap.New(core), func() string {
		var all []string
		for _, l := range lines.All() {
			text := l.Message
			for _, v := range l.ContextMap() {
				if s, ok := v.(string); ok {
					text += " " + s
				}
			}
			all = append(all, text)
		}
		return strings.Join(all, "\n")
	}
}

const few = 20 // the queue's size in these tests

func bounded(t *testing.T, endpoint string) (tr *Tracer, stop func(), said func() string) {
	t.Helper()
	quiet(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
	log, said := logged()
	tr, stop = started(t, Config{Log: log})
	return tr, stop, said
}

// flood makes more spans than have room.
func flood(tr *Tracer) {
	for i := range uint32(10 * few) {
		tr.Published(newEvent(i, recorded), 0, time.Now())
	}
}

// TestSilentCollector: when the collector never answers, nothing waits, and the shutdown is
// bounded.
func TestSilentCollector(t *testing.T) {
	c := servers.StartCollector(t)
	c.Hold(true)
	tr, stop, said := bounded(t, c.URL())
	flood(tr) // returns: nothing waits
	await.Until(t, "the collector to be asked", func() bool { return c.Calls() > 0 })
	stop() // returns: flushTime, and the request is broken off
	if !strings.Contains(said(), "spans are not exported") {
		t.Errorf("log:\n%s", said())
	}
	tr.Published(newEvent(1, recorded), 0, time.Now()) // after the end
}

// TestRefusingCollector: each answer 500 costs the spans of that request. All of them together are
// one line of the log.
func TestRefusingCollector(t *testing.T) {
	c := servers.StartCollector(t)
	c.Refuse(http.StatusInternalServerError)
	tr, _, said := bounded(t, c.URL())
	await.Until(t, "spans to be refused", func() bool {
		flood(tr)
		return c.Calls() >= 3 && said() != ""
	})
	c.Refuse(http.StatusOK)
	var ev *event.Event
	await.Until(t, "a span to be exported", func() bool {
		ev = newEvent(1000, recorded)
		tr.Published(ev, 0, time.Now())
		own := parsed(t, string(tr.Traceparent(ev, nil)))
		return slices.ContainsFunc(c.Spans(), func(s servers.Span) bool { return s.ID == own.SpanID() })
	})
	if n := strings.Count(said(), "spans are not exported"); n != 1 {
		t.Errorf("%d lines for %d refusals:\n%s", n, c.Calls(), said())
	}
}

// A key that every user of the host may read is not used.
func TestClientKeyOfOthers(t *testing.T) {
	quiet(t)
	file := filepath.Join(t.TempDir(), "key")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", file)
	log, said := logged()
	if tr := New(Config{Log: log}); tr != nil || !strings.Contains(said(), "chmod o-rwx "+file) {
		t.Errorf("tracing is on: %v; it says %s", tr != nil, said())
	}
}

// TestNoExporter: when it cannot be opened, which is logged, messages carry what their rows have.
func TestNoExporter(t *testing.T) {
	quiet(t)
	c := httptest.NewTLSServer(http.NotFoundHandler())
	defer c.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	// not https, as the certificate has it
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", file)
	log, said := logged()
	tr := New(Config{Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tr.Run(ctx) }()
	await.Until(t, "it to be logged", func() bool { return strings.Contains(said(), "open exporter") })
	await.Until(t, "the row's to be taken", func() bool { return string(tr.Traceparent(newEvent(1, recorded), nil)) == recorded })
	tr.Published(newEvent(1, recorded), 0, time.Now())
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
