package kafka

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// examined runs Check for a topic and returns what it has found. Each line that is not OK has a
// fix.
func examined(t *testing.T, cfg Config, topic string) []sink.Finding {
	t.Helper()
	template, err := sink.ParseTemplate(topic)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Topic = template
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found, _ := Check(ctx, cfg)
	for _, f := range found {
		if f.OK && (f.Warn || f.Fix != "") || !f.OK && f.Fix == "" || f.Detail == "" {
			t.Errorf("found %+v", f)
		}
	}
	return found
}

// checked is examined by name, for what is found once.
func checked(t *testing.T, cfg Config, topic string) map[string]sink.Finding {
	t.Helper()
	found := map[string]sink.Finding{}
	for _, f := range examined(t, cfg, topic) {
		found[f.Name] = f
	}
	return found
}

// named are the findings of a name.
func named(found []sink.Finding, name string) []sink.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f sink.Finding) bool { return f.Name != name })
}

// want checks one finding.
func want(t *testing.T, f sink.Finding, ok, warn bool, detail, fix string) {
	t.Helper()
	if f.OK != ok || f.Warn != warn || !strings.Contains(f.Detail, detail) || !strings.Contains(f.Fix, fix) {
		t.Errorf("found %+v, want OK %v, a warning %v, with %q and %q", f, ok, warn, detail, fix)
	}
}
