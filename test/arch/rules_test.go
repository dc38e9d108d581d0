package arch

import (
	"strings"
	"testing"
)

// TestRules breaks each rule on paper: the arrows' test is tested.
func TestRules(t *testing.T) {
	in := func(path string) string { return module + "/internal/" + path }
	for _, tc := range []struct {
		name string
		pkg  pkg
		want string // in the one fault; "" for none
	}{
		{"event stands on nothing", pkg{ImportPath: in("event"), Imports: []string{in("sink")}}, "internal/event imports internal/sink"},
		{"sink never knows config", pkg{ImportPath: in("sink"), Imports: []string{in("config")}}, "internal/sink imports internal/config"},
		{"nor does a sink", pkg{ImportPath: in("sink/rabbit"), Imports: []string{in("config")}}, "internal/sink/rabbit imports internal/config"},
		{"sinks do not know each other", pkg{ImportPath: in("sink/rabbit"), Imports: []string{in("sink/stdout")}}, "imports internal/sink/stdout"},
		{"only drivers names sinks", pkg{ImportPath: in("wiring"), Imports: []string{in("sink/kafka")}}, "imports internal/sink/kafka"},
		{"nor does the configuration", pkg{ImportPath: in("config"), Imports: []string{in("sink/rabbit")}}, "imports internal/sink/rabbit"},
		{"a command asks the driver", pkg{ImportPath: in("cli/operate"), Imports: []string{in("sink/stdout")}}, "imports internal/sink/stdout"},
		{"a sink knows the contract", pkg{ImportPath: in("sink/rabbit"), Imports: []string{in("sink"), in("event")}}, ""},
		{"no arrow sideways", pkg{ImportPath: in("relay"), Imports: []string{in("replication")}}, "internal/relay imports internal/replication"},
		{"nor up", pkg{ImportPath: in("decode"), Imports: []string{in("relay")}}, "internal/decode imports internal/relay"},
		{"devenv judges from outside", pkg{ImportPath: in("devenv/checker"), Imports: []string{in("relay")}}, "imports internal/relay"},
		{"devenv is one tree", pkg{ImportPath: in("devenv/demo"), Imports: []string{in("devenv/load"), in("event")}}, ""},
		{"the code does not use devenv", pkg{ImportPath: in("ops"), Imports: []string{in("devenv")}}, "imports internal/devenv"},
		{"its tests may", pkg{ImportPath: in("ops"), TestImports: []string{in("devenv")}}, ""},
		{"decode reads nothing", pkg{ImportPath: in("decode"), Imports: []string{"net/http"}}, "imports net/http: decode is pure"},
		{"prometheus is for ops", pkg{ImportPath: in("relay"), Imports: []string{"github.com/prometheus/client_golang/prometheus"}}, "only internal/ops/metrics"},
		{"OpenTelemetry is for tracing", pkg{ImportPath: in("relay"), Imports: []string{"go.opentelemetry.io/otel"}}, "only internal/tracing"},
		{"tracing has it", pkg{ImportPath: in("tracing"), Imports: []string{"go.opentelemetry.io/otel"}}, ""},
		{"metrics has it", pkg{ImportPath: in("ops/metrics"), Imports: []string{"github.com/prometheus/client_golang/prometheus"}}, ""},
		{"cmd is the top", pkg{ImportPath: module + "/test/fault", XTestImports: []string{module + "/cmd/cdc-relay"}}, "nobody imports cmd"},
		{"the binary has no tests", pkg{ImportPath: module + "/cmd/cdc-relay", Name: "main", Deps: []string{in("devenv")}}, "linked into the binary"},
		{"users import nothing internal", pkg{ImportPath: module + "/outbox", Imports: []string{in("event")}}, "outbox imports internal/event: users import it"},
		{"who reads rabbit does not read kafka", pkg{ImportPath: module + "/inbox/rabbit", Imports: []string{module + "/inbox/kafka"}}, "imports inbox/kafka: users import it"},
		{"a broker's inbox has the inbox", pkg{ImportPath: module + "/inbox/rabbit", Imports: []string{module + "/inbox"}}, ""},
		{"inbox has metrics and spans", pkg{ImportPath: module + "/inbox", Imports: []string{"github.com/prometheus/client_golang/prometheus", "go.opentelemetry.io/otel"}}, ""},
		{"the relay is no service", pkg{ImportPath: in("relay"), Imports: []string{module + "/inbox"}}, "internal/relay imports inbox"},
		{"a new public room is placed first", pkg{ImportPath: module + "/inbox/redis"}, "inbox/redis has no rule"},
		{"a new room is placed first", pkg{ImportPath: in("attic")}, "internal/attic has no rule"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := strings.Join(faults([]pkg{tc.pkg}), "\n")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) || strings.Count(got, "\n") > 0 {
				t.Errorf("faults:\n%s\nwant one with %q", got, tc.want)
			}
		})
	}
	const src = `package decode
import "time"
func f(at time.Time) { go f(time.Now()) }`
	if got := impurities(t, "x.go", src); len(got) != 2 {
		t.Errorf("impurities = %q, want the go statement and time.Now", got)
	}
}
