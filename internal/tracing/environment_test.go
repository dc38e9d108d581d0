// Wrong variables cost spans at most, never events.

package tracing

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// What cannot be a size or a time is logged and left out.
func TestSizesWithoutSense(t *testing.T) {
	for _, name := range []string{
		"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT",
	} {
		for _, value := range []string{"-1", "0", "5s", "9999999999999999"} {
			quiet(t)
			t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
			t.Setenv(name, value)
			mayBe := name == "OTEL_BSP_EXPORT_TIMEOUT" && value == "0"
			log, said := logged()
			if New(Config{Log: log}) == nil || strings.Contains(said(), name+` is "`+value) == mayBe {
				t.Errorf("%s=%s: %s", name, value, said())
			}
		}
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
	if e := readEnvironment(); e.on || !strings.Contains(strings.Join(e.warnings, ""), "chmod o-rwx "+file) {
		t.Errorf("%+v", e)
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
	if err := <-done; err != nil || tr.Stats() != (Stats{}) {
		t.Errorf("%v, %+v", err, tr.Stats())
	}
}
