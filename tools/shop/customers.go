// The customers, who order one thing after the other.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	customerCount   = 20
	ordersPerSecond = 50
)

var items = []string{"book", "chair", "lamp"}

// customers order at order-service, and remember which orders it has taken.
type customers struct {
	url    string
	client *http.Client

	mu    sync.Mutex
	taken []string // ids of orders that were answered
}

func newCustomers(url string) *customers {
	return &customers{url: url, client: &http.Client{Timeout: 10 * time.Second}}
}

// run has all of them order until ctx ends. Whoever has sent an order then waits for its answer.
func (c *customers) run(ctx context.Context) error {
	defer c.client.CloseIdleConnections()
	var all sync.WaitGroup
	errs := make(chan error, customerCount)
	for n := range customerCount {
		all.Go(func() {
			if err := c.shop(ctx, n+1); err != nil {
				errs <- err
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// shop is one customer: the next order follows the answer to the last one. Not all come at once.
func (c *customers) shop(ctx context.Context, number int) error {
	name := fmt.Sprintf("customer-%02d", number)
	if !every(ctx, time.Duration(number)*time.Second/ordersPerSecond) {
		return nil
	}
	ticker := time.NewTicker(customerCount * time.Second / ordersPerSecond)
	defer ticker.Stop()
	for n := 1; ; n++ {
		id := uuid.NewString()
		if err := c.order(context.WithoutCancel(ctx), id, name, items[n%len(items)], http.StatusCreated); err != nil {
			return err
		}
		if n%10 == 0 {
			if err := c.order(context.WithoutCancel(ctx), id, name, items[n%len(items)], http.StatusOK); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// order sends one order and checks the answer.
func (c *customers) order(ctx context.Context, id, name, item string, want int) error {
	body, err := json.Marshal(map[string]string{"id": id, "customer": name, "item": item})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/orders", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return fmt.Errorf("order: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("order: %w", err)
	}
	if resp.StatusCode != want {
		return fmt.Errorf("order %s: answer %d, want %d: %s", id, resp.StatusCode, want, answer)
	}
	if want == http.StatusCreated {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.taken = append(c.taken, id)
	}
	return nil
}

// answered are the ids of the orders that order-service has taken.
func (c *customers) answered() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.taken...)
}
