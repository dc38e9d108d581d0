// Package client asks a running relay over HTTP.
package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

// Health is "" or why the relay at an address is not healthy.
func Health(ctx context.Context, admin string) string {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	base := admin
	if !strings.Contains(base, "://") {
		base = "http://" + reachable(base)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/healthz", nil)
	if err != nil {
		return fmt.Sprintf("--admin %s: %v", admin, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Sprintf("no relay answers: %v", err)
	}
	defer resp.Body.Close()
	var h ops.Health
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&h); err != nil {
		return fmt.Sprintf("the program at %s is not a cdc-relay: %v", admin, err)
	}
	if !h.Healthy || resp.StatusCode != http.StatusOK {
		return fmt.Sprintf("%s: %s", resp.Status, strings.Join(h.Stuck, "; "))
	}
	return ""
}

const Timeout = 3 * time.Second

// AnswerError is an answer of the relay that is not a status: it is there, so the database is not asked instead.
type AnswerError struct{ Text string }

func (e *AnswerError) Error() string { return e.Text }

func Status(ctx context.Context, c *config.Config, admin string) (*ops.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	base := admin
	if !strings.Contains(base, "://") {
		base = "http://" + reachable(base)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/status", nil)
	if err != nil {
		return nil, &AnswerError{fmt.Sprintf("--admin %s: %v", admin, err)}
	}
	if err := authorize(req, c); err != nil {
		return nil, &AnswerError{err.Error()}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &AnswerError{fmt.Sprintf("the relay at %s answers %s: correct --admin, admin.read_token or admin.token", admin, resp.Status)}
	}
	var status ops.Status
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&status); err != nil {
		return nil, &AnswerError{fmt.Sprintf("the program at %s is not a cdc-relay: %v", admin, err)}
	}
	return &status, nil
}

// reachable turns an address to listen on into one to connect to.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func authorize(req *http.Request, c *config.Config) error {
	for _, secret := range []config.Secret{c.Admin.ReadToken, c.Admin.Token} {
		if secret.IsSet() {
			token, err := secret.Read()
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer "+token)
			return nil
		}
	}
	return nil
}
