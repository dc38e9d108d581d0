package devenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// This file makes virtual hosts on a broker that is not ours, where rabbitmqctl does not reach: by the HTTP API of its
// management plugin, at CDC_RELAY_TEST_RABBITMQ_API or else at port 15672 of the same host.

func (r *Rabbit) manageVHost(ctx context.Context, method, name string) error {
	if err := r.callAPI(ctx, method, "/api/vhosts/"+name, ""); err != nil || method == http.MethodDelete {
		return err
	}
	return r.callAPI(ctx, method, "/api/permissions/"+name+"/"+url.PathEscape(r.url.User.Username()),
		`{"configure": ".*", "write": ".*", "read": ".*"}`)
}

func (r *Rabbit) callAPI(ctx context.Context, method, path, body string) error {
	base := os.Getenv("CDC_RELAY_TEST_RABBITMQ_API")
	if base == "" {
		base = "http://" + r.url.Hostname() + ":15672"
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask management API: %w", err)
	}
	password, _ := r.url.User.Password()
	req.SetBasicAuth(r.url.User.Username(), password)
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask management API: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return errors.Join(fmt.Errorf("ask management API: %s %s: %s: %s", method, path, resp.Status, text), err)
	}
	return nil
}
