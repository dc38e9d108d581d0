package kafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
)

// A broker that gives no ids is left for another one.
func TestAnotherBrokerGivesIds(t *testing.T) {
	inMemory(t, 2, 4, Config{}, func(m *memory, r *running) {
		// the one that is configured, and so asked first
		m.change(func() { m.nodes[1].idless = true })
		began := time.Now()
		wantConfirmed(t, r.send(few(20)...))
		if took := time.Since(began); took > kafkaclient.StaleAfter+5*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// An answer without an error and without an id is not accepted.
func TestNoProducerID(t *testing.T) {
	inMemory(t, 1, 1, Config{}, func(m *memory, r *running) {
		m.change(func() { m.producer = -1000 })
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := r.try(ctx, few(1)...); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if asked := -1000 - m.producer; m.requests > 0 || asked < -100 {
			t.Errorf("%d requests, and %d questions for ids", m.requests, -asked)
		}
	})
}
