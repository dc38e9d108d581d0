// The OTEL_* variables.

package tracing

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/secretfile"
)

// environment is what the OTEL_* variables ask for, but for those that the exporters read
// themselves: endpoints, headers, certificates, timeouts.
type environment struct {
	on       bool
	grpc     bool // the protocol; else protobuf over HTTP
	warnings []string

	queue   int           // spans that wait at most
	batch   int           // of them in one request
	delay   time.Duration // the longest wait for others
	timeout time.Duration // of a request and its repetitions; 0: the exporter's alone

	parentBased bool   // a parent's decision is kept
	below       uint64 // traces with a lower half of their id below this are recorded
}

// all of the numbers that are compared, which have 63 bits.
const all = 1 << 63

// records decides by the lower half of a trace's id, as OpenTelemetry's samplers do: others that
// are asked about the trace agree.
func (e *environment) records(id uint64) bool { return id>>1 < e.below }

func readEnvironment() (e environment) {
	if !e.isEnabled() {
		return e
	}
	if err := secretfile.Check(first("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY")); err != nil {
		e.warn("%v: no traces are exported", err)
		return e
	}
	e.on = true
	switch p := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); p {
	case "", "http/protobuf":
	case "grpc":
		e.grpc = true
	default:
		e.warn("OTEL_EXPORTER_OTLP_PROTOCOL is %q, known are http/protobuf, which is taken, and grpc", p)
	}
	e.queue = e.number("OTEL_BSP_MAX_QUEUE_SIZE", 2048, 1)
	e.batch = e.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, 1)
	e.delay = time.Duration(e.number("OTEL_BSP_SCHEDULE_DELAY", 5000, 1)) * time.Millisecond
	e.timeout = time.Duration(e.number("OTEL_BSP_EXPORT_TIMEOUT", 30_000, 0)) * time.Millisecond
	e.sampler()
	return e
}

// isEnabled reports whether traces are wanted: an endpoint is named, or the exporter.
func (e *environment) isEnabled() bool {
	if strings.EqualFold(variable("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	switch x := variable("OTEL_TRACES_EXPORTER"); x {
	case "otlp":
		return true
	case "":
		return first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") != ""
	case "none":
		return false
	default:
		e.warn("OTEL_TRACES_EXPORTER is %q, known are otlp and none: no traces are exported", x)
		return false
	}
}

// sampler reads OTEL_TRACES_SAMPLER and its argument. The SDK's own samplers would be asked about
// every event, at the cost of a context each time.
func (e *environment) sampler() {
	const normal = "parentbased_always_on"
	name := strings.ToLower(variable("OTEL_TRACES_SAMPLER"))
	if name == "" {
		name = normal
	}
	for {
		var root string
		root, e.parentBased = strings.CutPrefix(name, "parentbased_")
		switch root {
		case "always_on":
			e.below = all
		case "always_off":
			e.below = 0
		case "traceidratio":
			e.below = uint64(e.ratio() * all)
		default:
			e.warn("OTEL_TRACES_SAMPLER is %q, which is not known here: %s is taken", name, normal)
			name = normal
			continue
		}
		return
	}
}

func (e *environment) ratio() float64 {
	arg := variable("OTEL_TRACES_SAMPLER_ARG")
	if arg == "" {
		return 1
	}
	ratio, err := strconv.ParseFloat(arg, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		e.warn("OTEL_TRACES_SAMPLER_ARG is %q, not a number from 0 to 1: 1 is taken", arg)
		return 1
	}
	return ratio
}

// number is a variable's value, or the default when it is not a number from least to a million.
func (e *environment) number(name string, usual, least int) int {
	const most = 1_000_000
	text := variable(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		e.warn("%s is %q, not a number from %d to %d: %d is taken", name, text, least, most, usual)
		return usual
	}
	return n
}

func (e *environment) warn(format string, args ...any) {
	e.warnings = append(e.warnings, fmt.Sprintf(format, args...))
}

// variable is a variable's value; an empty one is as if it was not set.
func variable(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// first is the value of the first of these that is set.
func first(names ...string) string {
	for _, n := range names {
		if v := variable(n); v != "" {
			return v
		}
	}
	return ""
}
