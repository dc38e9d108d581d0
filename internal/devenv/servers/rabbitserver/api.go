// Virtual hosts by the HTTP API of the management plugin: on the shared broker, where rabbitmqctl
// would cost a second each time, and on a broker that is not ours, where it does not reach.

package rabbitserver

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

// GivenAPI is where the plugin of a given broker answers: CDC_RELAY_TEST_RABBITMQ_API, or else port
// 15672 of the same host.
func GivenAPI(broker *url.URL) string {
	if base := os.Getenv("CDC_RELAY_TEST_RABBITMQ_API"); base != "" {
		return base
	}
	return "http://" + broker.Hostname() + ":15672"
}

// managementAnswers reports whether the plugin answers, if it was asked for.
func (r *Rabbit) managementAnswers(ctx context.Context) bool {
	return r.Api == "" || r.callAPI(ctx, http.MethodGet, "/api/whoami", "") == nil
}

func (r *Rabbit) manageVHost(ctx context.Context, method, name string) error {
	if err := r.callAPI(ctx, method, "/api/vhosts/"+name, ""); err != nil || method == http.MethodDelete {
		return err
	}
	return r.callAPI(ctx, method, "/api/permissions/"+name+"/"+url.PathEscape(r.Url.User.Username()),
		`{"configure": ".*", "write": ".*", "read": ".*"}`)
}

func (r *Rabbit) callAPI(ctx context.Context, method, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, r.Api+path, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask management API: %w", err)
	}
	password, _ := r.Url.User.Password()
	req.SetBasicAuth(r.Url.User.Username(), password)
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
