// An OpenTelemetry collector that keeps the spans it receives.

package servers

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/sentinel"
)

// Collector receives spans as an OpenTelemetry collector does, over HTTP and gRPC, and can be slow,
// refuse them, or be away.
type Collector struct {
	collect.UnimplementedTraceServiceServer

	addr, grpcAddr string
	rpc            *grpc.Server

	mu     sync.Mutex
	server *http.Server  // nil: it is away
	served chan struct{} // closed when server has let go of its port
	spans  []Span
	calls  int
	status int           // to answer with; 0: 200
	held   chan struct{} // not nil: answers wait until it is closed

	done    chan error
	watches bool  // it keeps no spans, but looks for the sentinel
	leak    error // the first that was found
}

// Span is one that was received.
type Span struct {
	Trace, ID, Parent string // hexadecimal; Parent "" for none
	Name              string
	Producer          bool
	Start, End        time.Time
	Attributes        map[string]string // of the span
	Resource          map[string]string
	Error             string // the status's description; "" when it is no error
	Text              string // all of it
}

// StartCollector starts one, until the test ends.
func StartCollector(t testing.TB) *Collector {
	t.Helper()
	c, err := LaunchCollector()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// LaunchCollector is StartCollector outside of tests; Close ends it.
func LaunchCollector() (*Collector, error) {
	c := &Collector{rpc: grpc.NewServer(), done: make(chan error, 1)}
	first, err := processes.ListenFree()
	if err != nil {
		return nil, err
	}
	second, err := processes.ListenFree()
	if err != nil {
		return nil, errors.Join(err, first.Close())
	}
	c.serve(first)
	c.grpcAddr = second.Addr().String()
	collect.RegisterTraceServiceServer(c.rpc, c)
	go func() { c.done <- c.rpc.Serve(second) }()
	return c, nil
}

// Close ends it.
func (c *Collector) Close() error {
	c.Hold(false)
	c.Stop()
	c.rpc.Stop()
	return <-c.done
}

// URL and GRPC are its endpoints.
func (c *Collector) URL() string { return "http://" + c.addr }

// GRPC is the endpoint for gRPC.
func (c *Collector) GRPC() string { return "http://" + c.grpcAddr }

// Stop ends the HTTP server: whoever connects is refused.
func (c *Collector) Stop() {
	c.mu.Lock()
	server, served := c.server, c.served
	c.server = nil
	c.mu.Unlock()
	if server != nil {
		_ = server.Close() // its connections are cut
		<-served           // a server that had not begun yet closes its port only now
	}
}

// Restart starts the HTTP server at its address. Nobody else has the port by then: ListenFree keeps
// it for this process.
func (c *Collector) Restart() error {
	listener, err := net.Listen("tcp", c.addr)
	if err != nil {
		return fmt.Errorf("start collector: %w", err)
	}
	c.serve(listener)
	return nil
}

func (c *Collector) serve(listener net.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addr = listener.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", c.receive)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	c.server, c.served = server, served
	go func() {
		defer close(served)
		_ = server.Serve(listener) //nolint:errcheck // it ends with Stop
	}()
}

// Refuse answers with a status from now on; 200 takes spans again.
func (c *Collector) Refuse(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// Hold has it answer nothing until it is let go.
func (c *Collector) Hold(hold bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case hold && c.held == nil:
		c.held = make(chan struct{})
	case !hold && c.held != nil:
		close(c.held)
		c.held = nil
	}
}

// Calls is how many requests have come, whatever was answered.
func (c *Collector) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// Spans are those that were taken.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// WaitSpan waits for a span of which ok is true.
func (c *Collector) WaitSpan(ctx context.Context, ok func(Span) bool) (found Span, err error) {
	err = processes.Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		for _, s := range c.Spans() {
			if ok(s) {
				found = s
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return found, fmt.Errorf("wait for a span: %w; %d have come: %v", err, len(c.Spans()), c.Spans())
	}
	return found, nil
}

// Export implements the gRPC service.
func (c *Collector) Export(ctx context.Context, r *collect.ExportTraceServiceRequest) (*collect.ExportTraceServiceResponse, error) {
	if c.answer(ctx, r) != http.StatusOK {
		return nil, errors.New("refused")
	}
	return &collect.ExportTraceServiceResponse{}, nil
}

func (c *Collector) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collect.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(c.answer(r.Context(), &request))
}

// answer takes the spans, or not, as it was told to. It waits while answers are held.
func (c *Collector) answer(ctx context.Context, r *collect.ExportTraceServiceRequest) (status int) {
	c.mu.Lock()
	c.calls++
	status, held := cmp.Or(c.status, http.StatusOK), c.held
	c.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return http.StatusServiceUnavailable
		}
	}
	if status == http.StatusOK {
		c.take(r)
	}
	return status
}

func (c *Collector) take(r *collect.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches {
		if c.leak == nil {
			c.leak = sentinel.Leak("spans", prototext.Format(r))
		}
		return
	}
	for _, of := range r.GetResourceSpans() {
		resource := texts(of.GetResource().GetAttributes())
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				span := Span{
					Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
					Name: s.GetName(), Producer: s.GetKind() == trace.Span_SPAN_KIND_PRODUCER,
					Start: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
					Attributes: texts(s.GetAttributes()), Resource: resource, Text: prototext.Format(s) + prototext.Format(of.GetResource()),
				}
				if s.GetStatus().GetCode() == trace.Status_STATUS_CODE_ERROR {
					span.Error = s.GetStatus().GetMessage()
				}
				c.spans = append(c.spans, span)
			}
		}
	}
}

// texts are attributes as texts.
func texts(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			out[kv.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			out[kv.GetKey()] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_BoolValue:
			out[kv.GetKey()] = fmt.Sprint(v.BoolValue)
		default:
			out[kv.GetKey()] = fmt.Sprint(v)
		}
	}
	return out
}
