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

// timeout is how long a relay may take to answer.
const timeout = 3 * time.Second

// AnswerError is the error for an unexpected answer. A server has answered, so the database is not
// asked instead.
type AnswerError struct{ Text string }

// Error implements error.
func (e *AnswerError) Error() string { return e.Text }

// Status asks the relay at an address for its status. c has the token.
func Status(ctx context.Context, c *config.Config, admin string) (*ops.Status, error) {
	token, err := readToken(c)
	if err != nil {
		return nil, &AnswerError{err.Error()}
	}
	var status ops.Status
	code, err := get(ctx, admin, "/api/v1/status", token, &status)
	if code != 0 && code != http.StatusOK {
		return nil, &AnswerError{fmt.Sprintf("the relay at %s answers %d %s: correct --admin, admin.tokens", admin, code, http.StatusText(code))}
	}
	if err != nil {
		return nil, err
	}
	return &status, nil
}

// Health asks the relay at an address whether it is healthy. It returns "" or the reason why not.
func Health(ctx context.Context, admin string) string {
	var h ops.Health
	code, err := get(ctx, admin, "/healthz", "", &h)
	switch {
	case err != nil && code == 0:
		return "no relay answers: " + err.Error()
	case err != nil:
		return err.Error()
	case !h.Healthy || code != http.StatusOK:
		return fmt.Sprintf("%d %s: %s", code, http.StatusText(code), strings.Join(h.Stuck, "; "))
	}
	return ""
}

// get reads the JSON of a path. code is 0 when nobody answers.
func get(ctx context.Context, admin, path, token string, into any) (code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	base := admin
	if !strings.Contains(base, "://") {
		base = "http://" + reachable(base)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return 0, &AnswerError{fmt.Sprintf("--admin %s: %v", admin, err)}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(into); err != nil {
		return resp.StatusCode, &AnswerError{fmt.Sprintf("the program at %s is not a cdc-relay: %v", admin, err)}
	}
	return resp.StatusCode, nil
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

// readToken is a token that may read the status; "" when none is configured.
func readToken(c *config.Config) (string, error) {
	for i := range c.Admin.Tokens {
		return c.Admin.Tokens[i].Read()
	}
	return "", nil
}
