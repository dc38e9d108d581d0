//go:build testall

package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
)

// running is a demo in the background.
type running struct {
	*demo
	ctx       context.Context // bounds the test
	out       *console.Recording
	interrupt func() error // ends it and returns what run returned
}

func startDemo(t *testing.T, sink string, worst bool, short length, keep bool) running {
	ctx := await.Context(t)
	life, stop := context.WithCancel(ctx)
	out := &console.Recording{}
	d := &demo{Console: console.To(out), programs: programs{broker: brokers[sink](), worst: worst}, length: short, keep: keep}
	ended := make(chan error, 1)
	go func() {
		err := d.run(life)
		out.End(err)
		ended <- err
	}()
	interrupt := sync.OnceValue(func() error {
		stop()
		return <-ended
	})
	t.Cleanup(func() {
		if err := interrupt(); t.Failed() { // it has not ended yet
			t.Logf("the demo ended with %v, and the relay with:\n%s", err, d.lastLines())
		}
	})
	return running{d, ctx, out, interrupt}
}

// TestDemo gives the demo in short, and commits an event by hand while it is kept open.
func TestDemo(t *testing.T) { testDemo(t, "rabbitmq", "RabbitMQ", nil) }

// testDemo wants the lines of the worst day, too, if there are any.
func testDemo(t *testing.T, sink, name string, worst []string) {
	p := startDemo(t, sink, worst != nil, length{
		flow: time.Second, poison: 100 * time.Millisecond, down: 200 * time.Millisecond, mistake: time.Second, after: 300 * time.Millisecond,
	}, true)
	p.out.Await(t, "It is dead letter ", "its key goes on", "Stopping "+name+".", name+" is back", "Caught up",
		"$ cdc-relay dead-letters replay ", "The poison order has arrived", "By mistake an operator", "None became a dead letter")
	p.out.Await(t, append(worst, "PASSED", "Everything still runs")...)
	conn, err := pgx.Connect(p.ctx, p.db)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(p.ctx)
	if _, err := conn.Exec(p.ctx, tryInsert); err != nil {
		t.Fatal(err)
	}
	p.out.Await(t, "order 42")
	if err := p.interrupt(); err != nil {
		t.Fatalf("a good demo ends with %v:\n%s", err, p.out)
	}
	for _, line := range []string{" 0 lost", "in commit order for each of 201 keys", "broker down, relay: broker down", p.relay.Admin() + "/console/", p.token} {
		if !strings.Contains(p.out.String(), line) {
			t.Errorf("no %q in the output:\n%s", line, p.out)
		}
	}
	if p.relay.Running() {
		t.Error("the relay still runs")
	}
}

func TestInterruptedWhileStarting(t *testing.T) {
	p := startDemo(t, "rabbitmq", false, length{}, false)
	p.out.Await(t, "PostgreSQL answers")
	if err := p.interrupt(); !errors.Is(err, errInterrupted) {
		t.Fatalf("run returned %v:\n%s", err, p.out)
	}
	if _, err := pgx.Connect(p.ctx, p.db); err == nil {
		t.Error("PostgreSQL still runs")
	}
	if !strings.Contains(p.out.String(), "Interrupted: stopping everything.") || strings.Contains(p.out.String(), "PASSED") {
		t.Errorf("output is:\n%s", p.out)
	}
}
