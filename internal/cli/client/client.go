// Package client asks a running relay over HTTP.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// RefusedError is the error of a relay that does not tell its status to who asks.
type RefusedError struct{ At string }

// Error implements error.
func (e *RefusedError) Error() string {
	return "the relay at " + e.At + " wants a token: set admin.socket or a token of role read in admin.tokens, docs/running.md#security"
}

// Status asks a relay for its status: at the address admin or, when that is "", the one that c
// configures, by its socket if it can. c has the tokens.
func Status(ctx context.Context, c *config.Config, admin string) (*ops.Status, error) {
	var status ops.Status
	err := anyOf(c, admin, false, func(t target) error {
		code, err := t.get(ctx, "/api/v1/status", t.readToken(c), &status)
		switch {
		case code == http.StatusUnauthorized || code == http.StatusForbidden:
			return &RefusedError{t.name}
		case code != 0 && code != http.StatusOK:
			return &AnswerError{fmt.Sprintf("the program at %s answers %d %s: correct --admin", t.name, code, http.StatusText(code))}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &status, nil
}

// Health asks a relay, found as by Status, whether it is healthy. It returns "" or the reason why
// not. c may be nil when admin is not "".
func Health(ctx context.Context, c *config.Config, admin string) string {
	err := anyOf(c, admin, true, func(t target) error {
		var h ops.Health
		code, err := t.get(ctx, "/healthz", "", &h)
		switch {
		case err != nil && code == 0:
			return fmt.Errorf("no relay answers: %w", err)
		case err != nil:
			return err
		case !h.Healthy || code != http.StatusOK:
			// which loop it is it tells only who may read: by the socket
			why := cmp.Or(strings.Join(h.Stuck, "; "), "the log names the loop that is stuck")
			return &AnswerError{fmt.Sprintf("%d %s: %s", code, http.StatusText(code), why)}
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return ""
}

// anyOf asks one target after the other until one answers. A socket that refuses, or that a relay
// left behind, is not the end: there may be a token for the port. The error is the last one.
func anyOf(c *config.Config, admin string, probe bool, ask func(target) error) error {
	all, err := targets(c, admin, probe)
	if err != nil {
		return err
	}
	for _, t := range all {
		var answered *AnswerError
		if err = ask(t); err == nil || errors.As(err, &answered) {
			return err
		}
	}
	return err
}

// get reads the JSON of a path. code is 0 when nobody answers.
func (t *target) get(ctx context.Context, path, token string, into any) (code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.base+path, nil)
	if err != nil {
		return 0, &AnswerError{fmt.Sprintf("--admin %s: %v", t.name, err)}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{
		Transport: t.transport,
		// a relay redirects nobody, and the token is for it alone
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(into); err != nil {
		return resp.StatusCode, &AnswerError{fmt.Sprintf("the program at %s is not a cdc-relay: %v", t.name, err)}
	}
	return resp.StatusCode, nil
}
